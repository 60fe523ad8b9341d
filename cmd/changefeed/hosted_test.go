package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/changefeed/cmd/changefeed/internal/hostfile"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

// hostSchema is the file for editors.
const hostSchema = "../../docs/host.schema.json"

// A flag that is added to run or relay is a key of the file, so the schema changes.
func TestTheSchemaOfAHostDocumentsItsKeys(t *testing.T) {
	want, err := hostfile.Schema(hostKinds())
	if err != nil {
		t.Fatal(err)
	}
	if *updateSchema {
		if err := os.WriteFile(hostSchema, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(hostSchema); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is another one (%v): go test ./cmd/changefeed -run Documents -update-schema", hostSchema, err)
	}
}

// The schema accepts what the command accepts, and refuses some of what it refuses.
func TestTheSchemaOfAHostFitsItsFiles(t *testing.T) {
	c := jsonschema.NewCompiler()
	schema, err := c.Compile(hostSchema)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		pageFile(t): true,
		"units: [{name: a, source: x, program: [cat, 5], max-attempts: 5, poll: 1s, meta: true}]": true,
		"units: [{name: 5, source: x, program: cat, jobs: '${JOBS}', mode: all}]":                 true,
		"units: [{name: a, source: x, webhook: u, webhook-secret-file: f, post: lines}]":          true,
		"units: []":                     false,
		"units: [{name: a, source: x}]": false,
		"units: [{name: a, source: x, program: cat, account-key: geheim}]":   false,
		"units: [{name: a, source: x, program: cat, webhook: u}]":            false,
		"units: [{name: a, source: x, webhook: u, long-lived: true}]":        false,
		"units: [{name: a, source: x, program: cat, max-attempts: many}]":    false,
		"units: [{name: a, source: x, program: cat, mode: some}]":            false,
		"units: [{name: a, source: x, program: cat}]\nsettings: {a: b}":      false,
		"units: [{name: a, source: x, program: cat, until-stdin-closes: 1}]": false,
	} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		asJSON, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(asJSON)); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != want {
			t.Errorf("%s: %v, want accepted %v", text, err, want)
		}
	}
}

// pageFile returns the file of docs/host.md.
func pageFile(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/host.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no file")
	}
	return text
}

// readHost returns the units of a file.
func readHost(t *testing.T, text string) ([]*hostedUnit, error) {
	t.Helper()
	return hostOf(t, text).readUnits()
}

// hostOf returns the host of a file, with flags.
func hostOf(t *testing.T, text string, flags ...string) *hosting {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{Use: "host"}
	under("changefeed", cmd)
	cmd.SetContext(context.Background())
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	stores := place.NewOpener(place.Settings{})
	t.Cleanup(func() { _ = stores.Close() })
	return newHosting(cmd, path, report.Text, stores)
}

// The units say as much as the host is asked to, and have its context unless they have one.
func TestUnitsHaveTheFlagsOfTheirHost(t *testing.T) {
	h := hostOf(t, "", "-vv", "--context", "of-host")
	for own, want := range map[string]string{"": "of-host", "of-unit": "of-unit"} {
		u := hostfile.Unit{Kind: programHandler, Command: []string{"cat"}}
		if own != "" {
			u.Values = []hostfile.Value{{Name: contextFlag, Text: own}}
		}
		cmd, _, err := h.newCommand(newUnitFlags(u.Kind), u)
		if err != nil {
			t.Fatal(err)
		}
		verbose, err := cmd.Flags().GetCount(verboseFlag)
		if got := cmd.Flag(contextFlag).Value.String(); err != nil || verbose != 2 || got != want {
			t.Errorf("verbose %d, %v, context %s, want 2 and %s", verbose, err, got, want)
		}
	}
}

// A unit that has ended does not run any more, so nobody waits for it at a second interrupt.
func TestAUnitThatHasEndedDoesNotRun(t *testing.T) {
	h := hostOf(t, fmt.Sprintf("units: [{name: a, source: %q, program: [cat], once: true, create-leases: true}]",
		importOrders(t)))
	units, err := h.readUnits()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.fleetMembers(units)[0].Run(t.Context()); err != nil {
		t.Error(err)
	}
	if h.running != 0 {
		t.Errorf("%d units run", h.running)
	}
}

// The keys of a unit, also the secrets, are what the flags of its command would be.
func TestKeysAreFlags(t *testing.T) {
	t.Setenv("TEST_SECRET", "whsec_c2VjcmV0IG9mIGEgd2ViaG9vaw==")
	t.Setenv("TEST_KEY", "a2V5")
	units, err := readHost(t, `
defaults: {source: "https://h/d/c", drain: 9s, account-key: "${TEST_KEY}"}
units:
  - {name: p, program: [cat, -u], long-lived: true, manual: true, grace: 2s, concurrency: 3}
  - {name: w, webhook: "https://example.com/x", webhook-secret: "${TEST_SECRET}", post: cloudevents, drain: 11s}
  - {name: r, relay: "embedded:dir", concurrency: 7, expire-after: 2m}
`)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range []string{
		"--name p --long-lived --manual --grace 2s --concurrency 3 --drain 9s",
		"--name w --post cloudevents --drain 11s",
		"--name r --to embedded:dir --concurrency 7 --expire-after 2m --drain 9s",
	} {
		flags := newUnitFlags(units[i].Kind)
		cmd := flags.command()
		shared := []string{"--source", "https://h/d/c", "--account-key", "a2V5"}
		if err := cmd.ParseFlags(append(strings.Fields(line), shared...)); err != nil {
			t.Fatal(err)
		}
		var args []string
		if units[i].Kind != relayHandler {
			args = units[i].Command
		}
		prepared, err := flags.prepare(cmd, args)
		if err != nil {
			t.Fatal(err)
		}
		got, want := units[i].prepared.one, prepared.one
		if !reflect.DeepEqual(got.Options, want.Options) || got.Settings.Source != want.Settings.Source ||
			got.Account.Key != want.Account.Key || got.Name != want.Name {
			t.Errorf("%s: %+v\nwant %+v", line, got.Settings, want.Settings)
		}
	}
	for i, want := range []string{"program cat", "webhook https://example.com/x", "relay embedded:dir"} {
		if got := units[i].describeHandler(); got != want {
			t.Errorf("handler %q, want %q", got, want)
		}
	}
}

// All values that no option can have are named, each with its line.
func TestAllWrongValuesOfAUnitAreNamed(t *testing.T) {
	_, err := readHost(t, `
units:
  - name: a
    source: docstore:d#c
    program: cat
    batch-size: 1e3
    drain: 10
`)
	if err == nil {
		t.Fatal("the file is taken")
	}
	for _, want := range []string{
		"host.yaml:6: unit a: batch-size is 1e3: want a whole number", "host.yaml:7: unit a: drain is 10: want a duration",
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	if lines := strings.Count(err.Error(), "\n"); lines != 1 || exitCode(t.Context(), err, true) != exitUsage {
		t.Errorf("got %v", err)
	}
}

// A unit is another one if any of its values is, wherever the value stands.
func TestAUnitHasAnotherIdentityIfAnyValueHas(t *testing.T) {
	const same = "defaults: {source: \"docstore:d#c\", poll: 1s}\nunits: [{name: a, program: [cat, -u], weight: 2}]"
	first, err := readHost(t, same)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"units: [{weight: 2, poll: 1s, name: a, source: \"docstore:d#c\", program: [cat, -u]}]": true,
		strings.Replace(same, "1s", "2s", 1):                                                    false,
		strings.Replace(same, "weight: 2", "weight: 3", 1):                                      false,
		strings.Replace(same, ", -u", ", -v", 1):                                                false,
		strings.Replace(same, ", weight: 2", "", 1):                                             false,
	} {
		units, err := readHost(t, text)
		if err != nil || len(units) != 1 {
			t.Fatal(units, err)
		}
		if got := units[0].identity() == first[0].identity(); got != want {
			t.Errorf("%s: the same %v, want %v", text, got, want)
		}
	}
}

// A unit is another one if a secret is, or if its arguments are divided in another way.
func TestAUnitHasAnotherIdentityByItsSecretAndItsArguments(t *testing.T) {
	identity := func(unit, secret string) string {
		t.Helper()
		t.Setenv("TEST_SECRET", secret)
		units, err := readHost(t, `units: [{name: a, source: "docstore:d#c", `+unit+"}]")
		if err != nil {
			t.Fatal(err)
		}
		return units[0].identity()
	}
	const one, two = "whsec_c2VjcmV0IG9mIGEgd2ViaG9vaw==", "whsec_YW5vdGhlciBzZWNyZXQgb2Ygb25l"
	const webhook = `webhook: "https://example.com/x", webhook-secret: "${TEST_SECRET}"`
	first, again := identity(webhook, one), identity(webhook, one)
	if first != again || first == identity(webhook, two) {
		t.Error("the identity does not follow the secret")
	}
	if identity("program: [cat, -u, x]", one) == identity(`program: [cat, "-u x"]`, one) {
		t.Error("two arguments are the same as one")
	}
}

// Two units are the same if their name and both containers are.
func TestAUnitIsThereOnce(t *testing.T) {
	const first = `units:
  - {name: a, source: "docstore:d#c", program: cat}
  - {name: a, `
	for second, want := range map[string]string{
		`source: "docstore:d#c", program: [cat, -u]}`:                   "host.yaml:3: unit a: name is a: the unit of line 2 has",
		`source: "docstore:d#other", program: cat}`:                     "",
		`source: "docstore:d#c", leases: "docstore:d#l", program: cat}`: "",
		// however the containers are written
		`source: "docstore:./d#c", leases: "docstore:d#default/leases", program: cat}`: "host.yaml:3: unit a: name is a",
	} {
		units, err := readHost(t, first+second)
		isTwice := err != nil && want != "" && strings.Contains(err.Error(), want)
		isBoth := err == nil && want == "" && len(units) == 2
		if !isTwice && !isBoth {
			t.Errorf("%s: %d units, %v, want %q", second, len(units), err, want)
		}
	}
}

// Two units of accounts are the same if they have the same account too, which may be in the address or an option.
func TestAUnitOfAnAccountIsThereOnce(t *testing.T) {
	const first = `units:
  - {name: a, endpoint: "https://one.example", source: "cosmos:shop/orders", program: cat}
  - {name: a, `
	for second, isTwice := range map[string]bool{
		`endpoint: "https://two.example", source: "cosmos:shop/orders", program: cat}`: false,
		`endpoint: "https://one.example", source: "cosmos:shop/orders", program: rev}`: true,
		`source: "https://One.example:443/shop/orders", program: cat}`:                 true,
		`source: "https://one.example/shop/Orders", program: cat}`:                     false,
	} {
		units, err := readHost(t, first+second)
		if (err != nil) != isTwice || isTwice && !strings.Contains(err.Error(), "the unit of line 2") {
			t.Errorf("%s: %d units, %v, want an error: %v", second, len(units), err, isTwice)
		}
	}
}

// A recommended command in a mistake keeps its flags, and the names of keys lose their dashes.
func TestAMistakeKeepsRecommendedCommands(t *testing.T) {
	h := &hosting{path: "h.yaml"}
	u := hostfile.Unit{Line: 3, Values: []hostfile.Value{
		{Name: "name", Text: "a", Line: 3}, {Name: "from", Text: "now", Line: 5},
	}}
	err := h.describeMistake(u, errorText("--from is now: leave --from out, or changefeed leases reset --name a --to START"))
	want := "h.yaml:5: unit a: from is now: leave from out, or changefeed leases reset --name a --to START"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	u.Values = append(u.Values, hostfile.Value{Name: "drain", Text: "1s", Line: 6})
	want = "h.yaml:5: unit a: from is now: want none beside drain"
	if got := h.describeMistake(u, errorText("--from is now: want none beside --drain")).Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := h.describeMistake(u, errorText("connect to nats://u:geheim@h")).Error(); strings.Contains(got, "geheim") {
		t.Errorf("got %s", got)
	}
	got := h.describeMistake(u, errorText("--to is x: want y")).Error()
	if got != "h.yaml:3: unit a: relay is x: want y" {
		t.Errorf("got %s", got)
	}
}

// errorText is an error.
type errorText string

func (e errorText) Error() string { return string(e) }

// Every flag of run and relay is a key of some handler, or one of those that a file does not have.
func TestEveryFlagIsAKey(t *testing.T) {
	for _, command := range []string{"run", "relay"} {
		var keys []string
		for _, k := range hostKinds() {
			if (k.Key == relayHandler) == (command == "relay") {
				for _, o := range k.Options {
					keys = append(keys, o.Name)
				}
			}
		}
		began := false
		cmd, _, err := rootCommand(&began).Find([]string{command})
		if err != nil {
			t.Fatal(err)
		}
		cmd.InheritedFlags()
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(keys, f.Name) && !slices.Contains(noKeys, f.Name) {
				t.Errorf("--%s of %s is no key of a file", f.Name, command)
			}
		})
	}
}
