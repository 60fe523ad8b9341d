package cosmostest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
)

// snippet returns the snippet of docs/server.md in a language.
func snippet(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "\n### Snippets for SDKs\n")
	_, code, begins := strings.Cut(part, "\n```"+language+"\n")
	code, _, ends := strings.Cut(code, "\n```\n")
	if !begins || !ends {
		t.Fatalf("docs/server.md has no snippet in %s", language)
	}
	return code
}

// runSnippet runs a command with the snippet as its input against a new server.
func runSnippet(t *testing.T, language, dir string, command ...string) {
	t.Helper()
	server := cosmostest.NewTestServer(t)
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(snippet(t, language))
	cmd.Env = append(os.Environ(), "COSMOS_ENDPOINT="+server.URL+"/", "COSMOS_KEY="+server.Key)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "0 databases" {
		t.Errorf("the snippet in %s prints %q, %v: want 0 databases\n%s", language, got, err, complaint.Bytes())
	}
}

func TestSnippetForPython(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import azure.cosmos").Run(); err != nil {
		t.Skip("skipped: python3 has no package azure-cosmos: ", err)
	}
	runSnippet(t, "python", ".", "python3", "-")
}

// The SDK is where make conformance-js installs it.
func TestSnippetForJavaScript(t *testing.T) {
	dir := "../../conformance/js"
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@azure", "cosmos")); err != nil {
		t.Skip("skipped: make conformance-js has not installed the SDK: ", err)
	}
	runSnippet(t, "js", dir, "node", "--input-type=module")
}

// The SDK is in the module of make conformance-go.
func TestSnippetForGo(t *testing.T) {
	dir := "../../conformance/go"
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos")
	list.Dir = dir
	if err := list.Run(); err != nil {
		t.Skip("skipped: the module of make conformance-go, which has the SDK for Go, does not resolve here: ", err)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(snippet(t, "go")), 0o600); err != nil {
		t.Fatal(err)
	}
	runSnippet(t, "go", dir, "go", "run", file)
}

// make conformance-rust compiles and runs the snippet, which takes minutes.
func TestSnippetForRust(t *testing.T) {
	program, err := os.ReadFile("../../conformance/rust/src/bin/snippet.rs")
	if err != nil {
		t.Fatal(err)
	}
	if got := snippet(t, "rust") + "\n"; got != string(program) {
		t.Errorf("docs/server.md has another snippet than conformance/rust/src/bin/snippet.rs:\n%s", got)
	}
}
