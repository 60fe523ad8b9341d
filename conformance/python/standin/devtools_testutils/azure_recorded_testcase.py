"""The credential of a hosted account."""


def get_credential(**_):
    """get_credential is called for hosted accounts only: the tests here use the emulator's key."""
    raise RuntimeError("the tests want a hosted account: want https://localhost:8081/, the emulator's address")
