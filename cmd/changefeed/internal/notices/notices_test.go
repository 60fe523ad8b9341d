package notices

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// noticed matches the line of a file in the text: module, version and path.
var noticed = regexp.MustCompile(`(?m)^(\S+\.\S+/\S+) (v\S+): \S+$`)

// A binary that is given away needs the licences of all that is in it. After a change of go.mod: make notices.
func TestEachModuleThatIsLinkedHasItsLicence(t *testing.T) {
	has := map[string]string{}
	for _, m := range noticed.FindAllStringSubmatch(Text, -1) {
		has[m[1]] = m[2]
	}
	if len(has) < 20 || !strings.Contains(Text, "\nGo and its standard library: LICENSE\n") ||
		!strings.Contains(Text, "The Go Authors") {
		t.Errorf("%d modules, and Go", len(has))
	}
	for _, tags := range []string{"", "brokers"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "../..")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == '\n' }) {
			if module, version, _ := strings.Cut(line, " "); has[module] != version {
				t.Errorf("with -tags %q %s is linked, and the notices have %q of it: run make notices", tags, line,
					has[module])
				has[module] = version
			}
		}
	}
	mod, err := os.ReadFile("../../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for module, version := range has {
		if !strings.Contains(string(mod), "\t"+module+" "+version) {
			t.Errorf("the notices have %s %s, which go.mod does not: run make notices", module, version)
		}
	}
}
