package contracttest_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract/contracttest"
	"github.com/millrace/changefeed/trigger/program"
)

// shellExample is the command of the example in a shell. The test is skipped if the example cannot run here.
func shellExample(t *testing.T) []string {
	t.Helper()
	for _, needed := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("the example needs %s, which is not here", needed)
		}
	}
	return []string{"bash", "../../../examples/shell/steered.sh"}
}

// The example in a shell keeps the contract.
func TestTheShellExamplePasses(t *testing.T) {
	command := shellExample(t)
	report, skipped := reportTo(t)
	failed, err := contracttest.Test(t.Context(), command, contracttest.Options{}, report)
	if failed != 0 || err != nil || *skipped != 7 { // batches at once, events and tokens
		t.Errorf("%d failed, %v, %d skipped, want 7", failed, err, *skipped)
	}
}

// handleByShell hands documents to the example.
func handleByShell(t *testing.T, documents ...string) error {
	t.Helper()
	w, err := program.NewWorker(shellExample(t), program.WorkerOptions{
		Stdout: io.Discard, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Start(t.Context())
	defer w.Close()
	b := &feed.Batch{LeaseToken: "-FF", Range: feed.FullRange(), Epoch: 1, Attempt: 1}
	for i, text := range documents {
		b.Changes = append(b.Changes, feed.Change{
			ID: fmt.Sprint(i), LSN: int64(i + 1), PartitionKey: feed.Key("k"), Body: []byte(text),
		})
	}
	return w.Handle(t.Context(), b)
}

// If jq dies in the middle of a batch, the changes that the shell has not read are not handled.
func TestTheShellExampleAnswersNoHalfBatch(t *testing.T) {
	bad := `{"do":"fail","error":"bad"}`
	f, ok := errors.AsType[*feed.Failure](handleByShell(t, bad, bad, bad))
	if !ok || len(f.Items) != 3 {
		t.Fatalf("three changes that fail: %v", f)
	}
	whole, err := exec.LookPath("jq")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	dying := "#!/bin/bash\nexec head -n 3 < <(exec '" + whole + "' \"$@\")\n" // the hello, the batch, its first change
	if err := os.WriteFile(filepath.Join(dir, "jq"), []byte(dying), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if err := handleByShell(t, bad, bad, bad); err == nil || errors.As(err, new(*feed.Failure)) {
		t.Errorf("after a third of a batch: %v, want a failure of the whole batch", err)
	}
}

// A word that is none of the test is no order to the shell, whatever it looks like.
func TestTheShellExampleObeysNoOtherWord(t *testing.T) {
	err := handleByShell(t, `{"do":"failed"}`, `{"do":"item"}`, `{"do":"x\nexit 3"}`, `{"do":"end"}`,
		`{"do":"count","key":"","n":1}`, `{"do":"count","key":"","n":2}`)
	if err != nil {
		t.Error(err)
	}
}
