"""What a machine with a card or the vendor's compiler has to say, as one report (docs/hardware.md)."""
