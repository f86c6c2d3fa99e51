"""`genesis.config`: a setting is one that exists, of the right type."""

from __future__ import annotations

import pytest

from genesis import config


def test_an_unknown_setting_is_an_error():
    with pytest.raises(AttributeError, match="there is no setting 'fused'; the settings are fuse"):
        config.fused = True


def test_a_setting_keeps_its_type():
    with pytest.raises(TypeError, match=r"config.fuse is a bool, not 1"):
        config.fuse = 1


def test_the_key_follows_the_settings(monkeypatch):
    before = config.key()
    monkeypatch.setattr(config, "fuse", not config.fuse)
    assert config.key() != before and hash(config.key())


def test_a_setting_that_was_renamed_warns(monkeypatch):
    monkeypatch.setattr(config, "keep_shadow_weights", True)
    with pytest.warns(DeprecationWarning, match="called keep_shadow_weights now"):
        config.keep_copies = False
    assert not config.keep_shadow_weights
    with pytest.warns(DeprecationWarning, match="called keep_shadow_weights now"):
        assert not config.keep_copies
