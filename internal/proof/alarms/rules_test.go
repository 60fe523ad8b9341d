package alarms_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// rule is a rule of Prometheus.
type rule struct {
	Record      string
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// readRules reads the rules. If the file cannot be read, there are none, which the tests notice.
func readRules() (all []rule) {
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	text, err := os.ReadFile(deployed + "alerts/" + rulesFile)
	if err != nil || yaml.Unmarshal(text, &file) != nil {
		return nil
	}
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

var (
	matchers = regexp.MustCompile(`\{[^}]*\}`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)`)
	selector = regexp.MustCompile(`\b((?:changefeed|messaging|azure|http|target)_[a-z_]+|changefeed:[a-z_:]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!=|!~|=)"([^"]*)"`)
)

// namesIn are the names of the series that rules read, sorted.
func namesIn(rules []rule) (names []string) {
	for _, r := range rules {
		text := matchers.ReplaceAllString(grouping.ReplaceAllString(r.Expr, ""), "")
		for _, m := range selector.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unknownIn returns what an expression reads that no program exports: series, labels, and values of labels.
func unknownIn(all exported, records []string, expr string) (unknown []string) {
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.FieldsFuncSeq(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !all.hasLabel(label) && !slices.Contains([]string{"job", "instance", "le"}, label) {
				unknown = append(unknown, "label "+label)
			}
		}
	}
	for _, m := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
		name := m[1]
		if slices.Contains(records, name) {
			continue
		}
		labels, exists := all[name]
		if !exists {
			unknown = append(unknown, name)
			continue
		}
		for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
			values := labels[label[1]]
			switch isPlain := !strings.Contains(label[3], "$"); {
			case label[1] == "job", label[1] == "instance":
			case values == nil:
				unknown = append(unknown, name+" by "+label[1])
			case label[3] == "" || !isPlain: // a variable, or whether there is a value
			case label[2] == "=" || label[2] == "!=":
				if !slices.Contains(values, label[3]) {
					unknown = append(unknown, name+" with "+label[0])
				}
			default:
				pattern := regexp.MustCompile("^(?:" + label[3] + ")$")
				if !slices.ContainsFunc(values, pattern.MatchString) {
					unknown = append(unknown, name+" with "+label[0])
				}
			}
		}
	}
	return unknown
}

// hasLabel reports whether a series has a label.
func (e exported) hasLabel(label string) bool {
	for _, labels := range e {
		if labels[label] != nil {
			return true
		}
	}
	return false
}

// recordsOf are the series that rules record, and the one that a user records.
func recordsOf(rules []rule) []string {
	records := []string{"changefeed:unit_instances:expected"}
	for _, r := range rules {
		if r.Record != "" {
			records = append(records, r.Record)
		}
	}
	return records
}

// Each series, label and value that a rule reads exists in a real export.
func TestRulesReadWhatIsExported(t *testing.T) {
	all, rules := everything(t), readRules()
	if len(rules) < 30 {
		t.Fatalf("%d rules", len(rules))
	}
	for _, r := range rules {
		if unknown := unknownIn(all, recordsOf(rules), r.Expr); len(unknown) > 0 {
			t.Errorf("%s%s reads %q, which no program exports", r.Alert, r.Record, unknown)
		}
	}
	wrong := `sum by (nonsense) (changefeed_typo{a="b"}) + changefeed_parked_total{changefeed_disposition="hold"}`
	want := []string{
		"label nonsense", "changefeed_typo", `changefeed_parked_total with changefeed_disposition="hold"`,
	}
	if got := unknownIn(all, nil, wrong); !slices.Equal(got, want) {
		t.Errorf("of a wrong rule %q are unknown, want %q", got, want)
	}
}

var (
	command = regexp.MustCompile(`changefeed (?:(leases|dlq) ([a-z]+)|([a-z]+))`)
	option  = regexp.MustCompile(`--([a-z-]+)`)
)

// Each alarm says in one sentence what is wrong, with the value, and in one line what to do, with commands and flags
// that exist.
func TestAlarmsSayWhatToDo(t *testing.T) {
	source := commandSource(t)
	for _, r := range readRules() {
		if r.Record != "" {
			continue
		}
		name := r.Alert + "/" + r.Labels["severity"]
		summary, runbook := r.Annotations["summary"], r.Annotations["runbook"]
		if !slices.Contains([]string{"info", "warn", "page"}, r.Labels["severity"]) || len(r.Annotations) != 2 {
			t.Errorf("%s has the labels %v and the annotations %v", name, r.Labels, r.Annotations)
		}
		if !strings.HasSuffix(summary, ".") || !strings.Contains(summary, "{{ $") || strings.Contains(summary, "\n") {
			t.Errorf("%s: %q is no sentence with a value", name, summary)
		}
		if runbook == "" || strings.Contains(runbook, "\n") || len(runbook) > 200 {
			t.Errorf("%s: %q is no line", name, runbook)
		}
		for _, m := range command.FindAllStringSubmatch(runbook, -1) {
			for _, word := range m[1:] {
				if word != "" && !isUsed(source, word) {
					t.Errorf("%s: there is no command %s", name, m[0])
				}
			}
		}
		for _, m := range option.FindAllStringSubmatch(runbook, -1) {
			if !strings.Contains(source, `"`+m[1]+`"`) {
				t.Errorf("%s: there is no flag %s", name, m[0])
			}
		}
	}
}

func isUsed(source, command string) bool {
	return regexp.MustCompile(`Use: +"` + command + `\b`).MatchString(source)
}

// commandSource is the code of the command.
func commandSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	root := os.DirFS("../../../cmd/changefeed")
	for _, pattern := range []string{"*.go", "internal/*/*.go"} {
		files, err := globbed(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(files)
	}
	return all.String()
}
