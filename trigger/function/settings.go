package function

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The settings of an app are the environment and, on a developer's machine, local.settings.json. As in .NET, the case
// of a name does not count, and two underscores stand for a colon.

// settings are the settings of an app, by their names as [settingKey] writes them.
type settings struct {
	values  map[string]string
	environ []string // for the program
}

// settingKey returns the name of a setting in the form in which settings are compared.
func settingKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, "__", ":")) }

// newSettings returns the settings of an environment.
func newSettings(environ []string) settings {
	s := settings{values: map[string]string{}, environ: slices.Clone(environ)}
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			s.values[settingKey(name)] = value
		}
	}
	return s
}

// get returns the value of a setting.
func (s settings) get(name string) (value string, ok bool) {
	value, ok = s.values[settingKey(name)]
	return value, ok
}

// hasBelow reports whether there are settings of a section.
func (s settings) hasBelow(section string) bool {
	for name := range s.values {
		if strings.HasPrefix(name, settingKey(section)+":") {
			return true
		}
	}
	return false
}

// add adds a setting of a file, unless the environment has this setting.
func (s settings) add(name, value string) (line string) {
	if _, ok := s.get(name); ok {
		return ""
	}
	s.values[settingKey(name)] = value
	return name + "=" + value
}

// localSettings is the file that the Azure Functions Core Tools read on a developer's machine, and only there.
const localSettings = "local.settings.json"

// readLocal adds the settings of local.settings.json, if there is such a file.
func (r *reader) readLocal() {
	_, err := os.Stat(filepath.Join(r.dir, localSettings))
	file := r.readFile(localSettings, err == nil)
	if file == nil {
		return
	}
	if file.boolean("IsEncrypted") {
		r.refuse("%s: IsEncrypted is true: want the values in plain text: func settings decrypt writes them",
			localSettings)
		return
	}
	values := file.section("Values")
	for _, m := range values.allMembers() {
		text, ok := plainText(m.value)
		if !ok {
			values.refuseValue(m.name, m.value, "a text")
			continue
		}
		if line := r.settings.add(m.name, text); line != "" {
			r.settings.environ = append(r.settings.environ, line)
		}
	}
	for _, m := range file.section("ConnectionStrings").allMembers() {
		text, ok := plainText(m.value)
		if !ok {
			var long struct{ ConnectionString string }
			if json.Unmarshal(m.value, &long) == nil {
				text = long.ConnectionString
			}
		}
		r.settings.add("ConnectionStrings:"+m.name, text)
	}
}

// named finds names of settings between percent signs.
var named = regexp.MustCompile(`%[^%]*%`)

// resolve replaces the names of settings between percent signs by their values. missing is the first name without a
// value.
func (s settings) resolve(text string) (resolved, missing string) {
	resolved = named.ReplaceAllStringFunc(text, func(name string) string {
		value, ok := s.get(name[1 : len(name)-1])
		if !ok {
			missing = cmp.Or(missing, name)
		}
		return value
	})
	return resolved, missing
}
