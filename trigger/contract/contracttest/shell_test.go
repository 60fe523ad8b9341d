package contracttest_test

import (
	"os/exec"
	"testing"

	"github.com/millrace/changefeed/trigger/contract/contracttest"
)

// The example in a shell keeps the contract.
func TestTheShellExamplePasses(t *testing.T) {
	for _, needed := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("the example needs %s, which is not here", needed)
		}
	}
	report, skipped := reportTo(t)
	command := []string{"bash", "../../../examples/shell/steered.sh"}
	failed, err := contracttest.Test(t.Context(), command, contracttest.Options{}, report)
	if failed != 0 || err != nil || *skipped != 7 { // batches at once, events and tokens
		t.Errorf("%d failed, %v, %d skipped, want 7", failed, err, *skipped)
	}
}
