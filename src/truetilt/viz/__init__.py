"""Figures. matplotlib axes in, matplotlib axes out; nothing is shown or saved here."""
