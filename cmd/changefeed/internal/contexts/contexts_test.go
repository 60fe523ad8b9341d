package contexts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// add adds a context to a file.
func add(t *testing.T, path string, c Context) {
	t.Helper()
	if err := Change(t.Context(), path, func(all *Contexts) error { return all.Add(c) }); err != nil {
		t.Fatal(err)
	}
}

// write writes a file of contexts.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWritersAtTheSameTimeLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.json")
	const writers = 20
	var work sync.WaitGroup
	for i := range writers {
		work.Go(func() { add(t, path, Context{Name: fmt.Sprint("c", i), Endpoint: "http://127.0.0.1:1"}) })
	}
	work.Wait()
	all, err := Read(path)
	if err != nil || len(all.ByName) != writers {
		t.Errorf("got %d contexts, %v, want %d", len(all.ByName), err, writers)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 1 {
		t.Errorf("got files %v, %v, want the contexts alone", left, err)
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("got mode %v, %v, want one for the user alone", info.Mode(), err)
	}
}

func TestAFileThatCannotBeReadIsLeftAsItIs(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "line 1, byte 0: unexpected end"},
		{"{\"version\": 1,\n\"contexts\": {", "line 2, byte 28: unexpected end"},
		{"{\"version\": 1}\n]", "line 2, byte 16: invalid character ']'"},
		{`{"version": 1, "current": {"secret": "c2VjcmV0"}}`, "current is of the wrong type: want string"},
		{`{"version": 1, "contexts": {"a": {"key": {"password": "c2VjcmV0"}}}}`, `unknown field "password"`},
		{`{"version": 2, "contexts": []}`, "have version 2, and this changefeed reads version 1"},
		{`{}`, "have version 0"},
	} {
		path := write(t, tt.text)
		err := Change(t.Context(), path, func(*Contexts) error { return nil })
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: got %v, want %s, and the file", tt.text, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%q: got %v, want no key", tt.text, err)
		}
		if got, err := os.ReadFile(path); string(got) != tt.text || err != nil {
			t.Errorf("got file %q, %v, want %q", got, err, tt.text)
		}
	}
}

func TestALinkToTheFileStays(t *testing.T) {
	path := write(t, `{"version": 1}`)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skipf("this machine makes no symbolic link: %v", err)
	}
	add(t, link, Context{Name: "shop"})
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("got %v, %v, want a link", info, err)
	}
	if all, err := Read(path); err != nil || len(all.ByName) != 1 {
		t.Errorf("got %v, %v, want the context in the file of the link", all, err)
	}
}

func TestALinkThatLeadsNowhereYetStays(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "config.json"), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skipf("this machine makes no symbolic link: %v", err)
	}
	add(t, link, Context{Name: "shop"})
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("got %v, %v, want a link", info, err)
	}
	if all, err := Read(path); err != nil || len(all.ByName) != 1 {
		t.Errorf("got %v, %v, want the context in the file of the link", all, err)
	}
}

// A killed command leaves the file that it was writing, with the keys in it.
func TestWhatAKilledCommandLeftIsRemovedByTheNext(t *testing.T) {
	path := write(t, `{"version": 1}`)
	if err := os.WriteFile(path+nextSuffix, []byte("c2VjcmV0"), 0o644); err != nil {
		t.Fatal(err)
	}
	add(t, path, Context{Name: "shop"})
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		t.Errorf("got files %v, %v, want the contexts alone", left, err)
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("got mode %v, %v, want one for the user alone", info.Mode(), err)
	}
}

func TestAContextIsChosenByFlagThenVariableThenUse(t *testing.T) {
	path := write(t, `{"version": 1, "current": "a", "contexts": {"a": {}, "b": {}, "c": {}}}`)
	t.Setenv(FileVariable, path)
	for _, tt := range []struct {
		flag, variable string
		given          bool
		want           string
	}{
		{"c", "b", true, "c"},
		{"", "b", false, "b"},
		{"", "", false, "a"},
		{"", "b", true, ""},
	} {
		t.Setenv(ContextVariable, tt.variable)
		got, ok, err := Choose(tt.flag, tt.given).Find()
		if got.Name != tt.want || ok != (tt.want != "") || err != nil {
			t.Errorf("%+v: got %q, %v, %v", tt, got.Name, ok, err)
		}
	}
	t.Setenv(ContextVariable, "d")
	_, _, err := Choose("", false).Find()
	if _, missing := errors.AsType[usage.Missing](err); !missing ||
		!strings.Contains(err.Error(), `$CHANGEFEED_CONTEXT is "d": there is no such context: want one of a, b, c`) {
		t.Errorf("got %v, want the names that exist", err)
	}
}

func TestAKeyIsReadFromItsPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("a2V5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHOP_KEY", " a2V5 ")
	sources := []KeySource{{Variable: "SHOP_KEY"}, {File: file}, {Secret: "a2V5"}}
	if runtime.GOOS != "windows" {
		sources = append(sources, KeySource{Command: []string{"sh", "-c", "echo said >&2; echo a2V5"}})
	}
	for _, k := range sources {
		if got, err := k.Read(t.Context()); got != "a2V5" || err != nil {
			t.Errorf("%s: got %q, %v, want the key", k, got, err)
		}
		if strings.Contains(k.String(), "a2V5") {
			t.Errorf("got %s, want no key", k)
		}
	}
	for _, tt := range []struct {
		source KeySource
		want   string
	}{
		{KeySource{Variable: "NOBODYS_KEY"}, "there is no key"},
		{KeySource{File: file + "2"}, "read key: open " + file + "2"},
		{KeySource{Command: []string{"no-such-program"}}, "run key command no-such-program"},
	} {
		if got, err := tt.source.Read(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %q, %v, want %s", got, err, tt.want)
		}
	}
}

func TestAKeyCommandSaysWhyAndEnds(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	_, err := runCommand(t.Context(), []string{"sh", "-c", "echo locked >&2; echo c2VjcmV0; exit 3"}, time.Minute)
	if err == nil || err.Error() != "run key command sh: exit status 3: locked" {
		t.Errorf("got %v, want what the command said, and no key", err)
	}
	_, err = runCommand(t.Context(), []string{"sh", "-c", `printf '\033]0;a\007b\nc' >&2; exit 3`}, time.Minute)
	if err == nil || err.Error() != "run key command sh: exit status 3: ]0;a b c" {
		t.Errorf("got %v, want what the command said, without control characters", err)
	}
	_, err = runCommand(t.Context(), []string{"tail", "-f", os.DevNull}, 50*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "no key within 50ms") {
		t.Errorf("got %v, want the end of its time", err)
	}
}

func TestAKeyCommandMayLeaveAChild(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	k := KeySource{Command: []string{"sh", "-c", "echo a2V5; sleep 5 &"}}
	if got, err := k.Read(t.Context()); got != "a2V5" || err != nil {
		t.Errorf("got %q, %v, want the key that was written", got, err)
	}
}

func TestAKeyIsOneShortLine(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	many := filepath.Join(t.TempDir(), "many")
	if err := os.WriteFile(many, make([]byte, outputLimit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		source KeySource
		want   string
	}{
		{KeySource{Command: []string{"sh", "-c", "echo a2V5; echo a2V5"}}, "there are several lines"},
		{KeySource{Command: []string{"sh", "-c", "yes a2V5"}}, "there are more than 65536 bytes"},
		{KeySource{File: many}, "there are more than 65536 bytes"},
		{KeySource{Secret: "a2V5\na2V5"}, "there are several lines"},
	} {
		if got, err := tt.source.Read(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %q, %v, want %s", tt.source, got, err, tt.want)
		}
	}
}

func TestACommandIsSplitIntoWords(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"pass show contoso", []string{"pass", "show", "contoso"}},
		{`  sh -c 'cat key | tr -d "\n"' `, []string{"sh", "-c", `cat key | tr -d "\n"`}},
		{`a "b c"d ''`, []string{"a", "b cd", ""}},
		{`a 'b`, nil},
		{`  `, nil},
		{`'' a`, nil},
	} {
		got, err := ParseCommand(tt.text)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%q: got %q, %v, want %q", tt.text, got, err, tt.want)
		}
	}
}

func TestNamesAreWords(t *testing.T) {
	for name, want := range map[string]bool{
		"shop": true, "東京-2": true, "a.b_c": true, "": false, "-x": false, "a b": false, "a/b": false, ".x": false,
	} {
		if err := CheckName(name); (err == nil) != want {
			t.Errorf("%q: got %v, want valid %v", name, err, want)
		}
	}
}

func TestAContextHasOneKey(t *testing.T) {
	flags := map[string]func(w *Wanted){
		"--key-env":     func(w *Wanted) { w.Key.Variable = "SHOP_KEY" },
		"--key-file":    func(w *Wanted) { w.Key.File = "key" },
		"--key-command": func(w *Wanted) { w.KeyCommand = "pass shop" },
		"--account-key": func(w *Wanted) { w.Key.Secret, w.StoreSecret = "c2VjcmV0", true },
	}
	for one, set := range flags {
		for other, setOther := range flags {
			w := Wanted{Context: Context{Name: "shop", Endpoint: "https://contoso.example"}}
			set(&w)
			setOther(&w)
			_, err := w.Complete()
			if one == other && err != nil || one != other && (!errors.As(err, new(usage.Error)) ||
				!strings.Contains(err.Error(), one) || !strings.Contains(err.Error(), other)) {
				t.Errorf("%s and %s: got %v", one, other, err)
			}
		}
	}
}

// A command finds the files of a context from any directory.
func TestPathsOfAContextAreAbsolute(t *testing.T) {
	account := Context{Endpoint: "https://contoso.example", CA: "ca.pem", Key: KeySource{File: "key"}}
	for _, c := range []Context{account, {Directory: "data"}} {
		c.Name = "shop"
		got, err := Wanted{Context: c}.Complete()
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{got.CA, got.Key.File, got.Directory} {
			if path != "" && !filepath.IsAbs(path) {
				t.Errorf("got the path %s", path)
			}
		}
	}
}
