"""genesis"""
