package hostfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// kinds are those of a small command.
var kinds = []Kind{
	{Key: "program", IsList: true, Options: []Option{
		{Name: "name", Type: "string"},
		{Name: "poll", Type: "string"},
		{Name: "long-lived", Type: "boolean"},
		{Name: "account-key", Type: "string", IsSecret: true},
	}},
	{Key: "webhook", Flag: "url", Options: []Option{
		{Name: "name", Type: "string"},
		{Name: "post", Type: "string"},
	}},
}

func TestUnitsAreRead(t *testing.T) {
	t.Setenv("TEST_POLL", "3s")
	t.Setenv("TEST_KEY", "c2VjcmV0")
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("a2V5\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Parse("h.yaml", fmt.Appendf(nil, `version: 1
defaults: {poll: "${TEST_POLL}", post: lines, account-key: "${TEST_KEY}"}
units:
  - name: a
    program: [node, "$$x.mjs", 5]
    long-lived: true
  - program: ./mail.sh
    poll: 1s
    account-key-file: %s
  - webhook: https://example.com/${TEST_POLL}
    name: "0"
`, file), kinds)
	if err != nil {
		t.Fatal(err)
	}
	want := []Unit{
		{Kind: "program", Command: []string{"node", "$x.mjs", "5"}, Line: 4, Values: []Value{
			{"name", "a", 4}, {"long-lived", "true", 6}, {"poll", "3s", 2}, {"account-key", "c2VjcmV0", 2},
		}},
		{Kind: "program", Command: []string{"./mail.sh"}, Line: 7, Values: []Value{
			{"poll", "1s", 8}, {"account-key", "a2V5", 9},
		}},
		{Kind: "webhook", Command: []string{"https://example.com/3s"}, Line: 10, Values: []Value{
			{"name", "0", 11}, {"post", "lines", 2},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if u := got[0]; u.Value("name") != "a" || u.Value("post") != "" || u.LineOf("long-lived") != 6 ||
		u.LineOf("post") != 4 {
		t.Errorf("values and lines of %+v", u)
	}
}

// mistakes are files, and the error about each of them.
var mistakes = map[string]struct{ text, want string }{
	"empty":       {"", "h.yaml: the file is empty: want units, a list"},
	"no YAML":     {"units:\n  - [", "h.yaml:2: the file is not valid YAML: did not find expected node content"},
	"a list":      {"- a", "h.yaml:1: the file is a list: want keys with values"},
	"no units":    {"defaults: {poll: 1s}", "h.yaml: units is missing: want a list of units"},
	"units empty": {"units: []", "h.yaml:1: units is an empty list: want a list of units"},
	"units text":  {"units: all", "h.yaml:1: units is all: want a list of units"},
	"top key":     {"unit: []", "h.yaml:1: unit is unknown: want defaults, units or version"},
	"later version": {
		"version: 2\nmembers: {}",
		"h.yaml:1: version is 2: want 1, or the newer changefeed for which the file was written",
	},
	"no version": {
		"units: []\nversion:",
		"h.yaml:2: version is empty: want 1, or the newer changefeed for which the file was written",
	},
	"no handler": {"units:\n  - name: a", "h.yaml:2: units[0] has no handler: want one of program, webhook"},
	"misspelled handler": {
		"units:\n  - name: a\n    programm: x",
		"h.yaml:2: units[0] has no handler: programm in line 3 is unknown: do you mean program?",
	},
	"two handlers": {
		"units:\n  - program: a\n    webhook: b",
		"h.yaml:2: units[0] has several handlers, program and webhook: want one of program, webhook",
	},
	"unknown key": {
		"units:\n  - program: a\n    pol: 1s", "h.yaml:3: units[0].pol is unknown: do you mean poll?",
	},
	"a flag": {
		"units:\n  - program: a\n    --poll: 1s", "h.yaml:3: units[0].--poll is unknown: do you mean poll?",
	},
	"nothing like it": {
		"units:\n  - program: a\n    zzzzzzz: 1s",
		"h.yaml:3: units[0].zzzzzzz is unknown: want the name of a flag without the dashes",
	},
	"of another handler": {
		"units:\n  - program: a\n    post: lines",
		"h.yaml:3: units[0].post does not fit the handler of this unit: leave it out",
	},
	"twice":      {"units:\n  - program: a\n    poll: 1s\n    poll: 2s", "h.yaml:4: units[0].poll is there twice: want it once"},
	"null":       {"units:\n  - program: a\n    poll:", "h.yaml:3: units[0].poll is empty: want a value"},
	"a mapping":  {"units:\n  - program: a\n    poll: {a: b}", "h.yaml:3: units[0].poll is a mapping: want a value"},
	"list":       {"units:\n  - program: a\n    poll: [1s]", "h.yaml:3: units[0].poll is a list: want a value"},
	"no program": {"units:\n  - program:", "h.yaml:2: units[0].program is empty: want a value"},
	"empty program": {
		"units:\n  - program: []",
		"h.yaml:2: units[0].program is an empty list: want a program, or a list of a program and its arguments",
	},
	"list of URLs": {"units:\n  - webhook: [a]", "h.yaml:2: units[0].webhook is a list: want a value"},
	"merge": {
		"units:\n  - &a {program: x}\n  - <<: *a\n    poll: 1s",
		"h.yaml:3: units[1] has a key that is <<: want a name; what units share stands in defaults",
	},
	"a secret": {
		"units:\n  - program: a\n    account-key: geheim",
		"h.yaml:3: units[0].account-key is a secret: want ${NAME}, an environment variable, or account-key-file, " +
			"the path of a file",
	},
	"half a secret": {
		"units:\n  - program: a\n    account-key: geheim${TEST_KEY}",
		"h.yaml:3: units[0].account-key is a secret: want ${NAME}, an environment variable, or account-key-file, " +
			"the path of a file",
	},
	"secret twice": {
		"units:\n  - program: a\n    account-key: ${TEST_KEY}\n    account-key-file: f",
		"h.yaml:4: units[0].account-key and account-key-file are both there: want one of them",
	},
	"no file": {
		"units:\n  - program: a\n    account-key-file: /nowhere/key",
		"h.yaml:3: units[0].account-key-file is /nowhere/key: no such file or directory",
	},
	"password": {
		"units:\n  - webhook: https://u:geheim@h/p",
		"h.yaml:2: units[0].webhook has a password, which is a secret: want ${NAME} in its place, an environment variable",
	},
	"password, of a URL that is none": {
		"units:\n  - webhook: nats://u:geheim@h:p/q",
		"h.yaml:2: units[0].webhook has a password, which is a secret: want ${NAME} in its place, an environment variable",
	},
	"token": {
		"units:\n  - webhook: nats://geheim@h:4222",
		"h.yaml:2: units[0].webhook has a password, which is a secret: want ${NAME} in its place, an environment variable",
	},
	"dollars as a secret": {
		"units:\n  - program: a\n    account-key: $$$$",
		"h.yaml:3: units[0].account-key is a secret: want ${NAME}, an environment variable, or account-key-file, the path " +
			"of a file",
	},
	"binary": {
		"units:\n  - program: !!binary Y2F0",
		"h.yaml:2: units[0].program is binary data: want a text",
	},
	"password that is none of a URL": {
		"units:\n  - webhook: https://u:${TEST_RAW}@h/p",
		"h.yaml:2: units[0].webhook has $TEST_RAW before an @: want its value as a URL has it, with %2F for / and the like",
	},
	"no variable": {
		"units:\n  - program: a\n    poll: ${TEST_NOTHING}",
		"h.yaml:3: units[0].poll needs $TEST_NOTHING: the environment has no such variable",
	},
	"an empty secret": {
		"units:\n  - program: a\n    account-key: ${TEST_EMPTY}",
		"h.yaml:3: units[0].account-key is ${TEST_EMPTY}: the variable is empty: want the secret in it",
	},
	"no name of a variable": {
		"units:\n  - program: a\n    poll: ${TEST-KEY}",
		"h.yaml:3: units[0].poll has ${TEST-KEY}: want ${NAME} for an environment variable, or $$ for a dollar",
	},
	"default for nobody": {
		"defaults: {post: lines}\nunits: [{program: a}]",
		"h.yaml:1: defaults.post is for no unit: want it in the units that it is for",
	},
	"handler as a default": {
		"defaults: {program: x}\nunits: [{program: a}]",
		"h.yaml:1: defaults.program is a handler: want it in a unit",
	},
	"flag of a handler": {
		"defaults: {url: x}\nunits: [{program: a}]",
		"h.yaml:1: defaults.url is unknown: want the key webhook of a unit in its place",
	},
	"argument with a colon": {
		"units:\n  - program: [echo, a: b]",
		"h.yaml:2: units[0].program[1] is a mapping: want a text, in quotes if it has a colon and a blank",
	},
	"tab in a unit": {
		"units:\n  - program: a\n    once: true\n\n\tpoll: 1s",
		"h.yaml:5: the file is not valid YAML: found a tab character that violates indentation: want spaces before a key",
	},
	"tab": {
		"units:\n\t- program: a",
		"h.yaml:2: the file is not valid YAML: found character that cannot start any token: " +
			"want spaces before a key, and quotes around a text that begins with @ or `",
	},
	"two documents": {
		"units: [{program: a}]\n---\nunits: [{program: b}]",
		"h.yaml:3: the file has a second document after ---: want all units in one",
	},
	"a device as a file": {
		"units:\n  - program: a\n    account-key-file: " + os.DevNull,
		"h.yaml:3: units[0].account-key-file is " + os.DevNull + ": it is a pipe or a device: want a file, which is " +
			"read again at each SIGHUP",
	},
	"several": {
		"units:\n  - {program: a, pol: 1s}\n  - {webhook: b, jobs: 1}",
		"h.yaml:2: units[0].pol is unknown: do you mean poll?\n" +
			"h.yaml:3: units[1].jobs is unknown: want the name of a flag without the dashes",
	},
}

// If a flag may be repeated, the option may be a list, also as a default. Values of a unit replace all of the defaults.
func TestAnOptionMayBeAList(t *testing.T) {
	t.Setenv("TEST_NAME", "C")
	several := []Kind{{Key: "functions", Options: []Option{{Name: "function", Type: "string", IsList: true}}}}
	got, err := Parse("h.yaml", []byte(`
defaults: {function: [A, B]}
units:
  - functions: app
  - functions: app
    function: ["${TEST_NAME}", 4]
  - functions: app
    function: D
`), several)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Value{
		{{"function", "A", 2}, {"function", "B", 2}},
		{{"function", "C", 6}, {"function", "4", 6}},
		{{"function", "D", 8}},
	}
	for i, u := range got {
		if !slices.Equal(want[i], u.Values) {
			t.Errorf("unit %d has %v, want %v", i, u.Values, want[i])
		}
	}
	for text, want := range map[string]string{
		"[]": "function is an empty list: want a value", "[A, {b: c}]": "function[1] is a mapping: want a value",
	} {
		_, err := Parse("h.yaml", []byte("units:\n  - functions: app\n    function: "+text), several)
		if err == nil || err.Error() != "h.yaml:3: units[0]."+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestMistakesNameTheLineAndTheRemedy(t *testing.T) {
	t.Setenv("TEST_KEY", "c2VjcmV0")
	t.Setenv("TEST_EMPTY", "")
	t.Setenv("TEST_RAW", "/geheim")
	for name, tt := range mistakes {
		t.Run(name, func(t *testing.T) {
			units, err := Parse("h.yaml", []byte(tt.text), kinds)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if _, ok := errors.AsType[usage.Error](err); !ok || units != nil {
				t.Errorf("%v is no error of usage, or leaves units: %v", err, units)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Error("the error shows a secret")
			}
		})
	}
}

// A file that is no configuration is not read whole.
func TestALargeFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h.yaml")
	if err := os.WriteFile(file, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file, kinds); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("a large file: %v", err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "no.yaml"), kinds); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// No text makes the reader crash, and a mistake has a place in the file.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"units: [{program: a}]", "a: &a [*a]", "units: &u [*u]", "defaults: {poll: 1s}\nunits:\n- {program: [a, *b]}",
		"units: [{program: a, poll: \"${X\"}]", "? [a]\n: b",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		units, err := Parse("h.yaml", text, kinds)
		if (err == nil) == (len(units) == 0) {
			t.Errorf("%q: %v, %v", text, units, err)
		}
		if mistake, ok := errors.AsType[*Mistake](err); err != nil && !ok {
			t.Errorf("%q: %v has no place: %v", text, err, mistake)
		}
	})
}
