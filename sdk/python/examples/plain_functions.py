"""Plain functions: a refund runs only if the gateway allows it, and once for each order."""

import sys

from sluicegate import ParkedCallError, SluiceClient, SluiceError

client = SluiceClient()  # SLUICE_URL, SLUICE_AGENT_KEY_FILE


@client.gate("refund", operation=lambda arguments: f"refund-{arguments['order']}")
def refund(order: str, cents: int) -> str:
    """Your own code: it runs only after the gateway allowed exactly these arguments."""
    return f"refunded {cents} cents of {order}"


def main(order: str, cents: int) -> int:
    try:
        print(refund(order, cents))
    except ParkedCallError as parked:
        # Run the program again after the decision: the same order is the same operation.
        print(f"a person decides about {parked.call_id}")
    except SluiceError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
