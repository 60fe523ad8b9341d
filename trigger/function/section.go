package function

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/spelling"
)

// A section is an object in a file of the app. Its members are found in any case of their names. A nil section has no
// members.
type section struct {
	r       *reader
	file    string // from the directory of the app
	path    string // in the file; empty for the whole
	members []member
}

// readFile reads a file of the app; nil if it cannot be read.
func (r *reader) readFile(file string, mustExist bool) *section {
	if !mustExist {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(r.dir, file))
	if err != nil {
		if at, ok := errors.AsType[*os.PathError](err); ok {
			err = at.Err
		}
		r.refuse("%s: %w", file, err)
		return nil
	}
	members, err := parseObject(toJSON(text))
	if err != nil {
		r.refuse("%s: %w", file, err)
		return nil
	}
	return r.newSection(file, "", members)
}

// newSection returns a section, and refuses members with the same name.
func (r *reader) newSection(file, path string, members []member) *section {
	s := &section{r, file, path, members}
	seen := map[string]bool{}
	for _, m := range members {
		if key := strings.ToLower(m.name); seen[key] {
			r.refuse("%s is there twice: want it once", s.nameOf(m.name))
		} else {
			seen[key] = true
		}
	}
	return s
}

// allMembers returns the members.
func (s *section) allMembers() []member {
	if s == nil {
		return nil
	}
	return s.members
}

// pathOf returns the path of a member in its file.
func (s *section) pathOf(name string) string {
	if s.path == "" {
		return name
	}
	return s.path + "." + name
}

// nameOf names a member for an error.
func (s *section) nameOf(name string) string { return s.file + ": " + s.pathOf(name) }

// refuseValue refuses the value of a member.
func (s *section) refuseValue(name string, value json.RawMessage, want string) {
	if s.file == localSettings { // any value may be a secret
		s.r.refuse("%s is another kind of value: want %s", s.nameOf(name), want)
		return
	}
	s.r.refuse("%s is %s: want %s", s.nameOf(name), shown(string(value)), want)
}

// hostFile is the file whose members settings can replace.
const hostFile = "host.json"

// overrides is the beginning of the settings that replace members of host.json.
const overrides = "AzureFunctionsJobHost:"

// settingOf returns the setting that replaces a member of host.json.
func (s *section) settingOf(name string) string {
	return overrides + strings.ReplaceAll(s.pathOf(name), ".", ":")
}

// findMember returns the value of a member; ok is false if there is none, or if it is null.
func (s *section) findMember(name string) (value json.RawMessage, ok bool) {
	if s == nil {
		return nil, false
	}
	if s.file == hostFile {
		if text, ok := s.r.settings.get(s.settingOf(name)); ok {
			value, err := json.Marshal(text)
			return value, err == nil
		}
	}
	i := slices.IndexFunc(s.members, func(m member) bool { return strings.EqualFold(m.name, name) })
	if i < 0 || string(s.members[i].value) == "null" {
		return nil, false
	}
	return s.members[i].value, true
}

// hasMember reports whether there is a member, which may be null.
func (s *section) hasMember(name string) bool {
	return s != nil && slices.ContainsFunc(s.members, func(m member) bool { return strings.EqualFold(m.name, name) })
}

// section returns the member that is an object; nil if there is none.
func (s *section) section(name string) *section {
	value, ok := s.findMember(name)
	if !ok {
		if s != nil && s.file == hostFile && s.r.settings.hasBelow(s.settingOf(name)) {
			return s.r.newSection(s.file, s.pathOf(name), nil)
		}
		return nil
	}
	members, err := parseObject(value)
	if err != nil {
		s.refuseValue(name, value, "an object")
		return nil
	}
	return s.r.newSection(s.file, s.pathOf(name), members)
}

// text returns a text as it is.
func (s *section) text(name string) (text string, ok bool) {
	value, ok := s.findMember(name)
	if !ok {
		return "", false
	}
	if err := json.Unmarshal(value, &text); err != nil {
		s.refuseValue(name, value, "a text")
		return "", false
	}
	return text, true
}

// setting returns a text in which the names of settings between percent signs are replaced.
func (s *section) setting(name string) (text string, ok bool) {
	given, ok := s.text(name)
	if !ok {
		return "", false
	}
	text, missing := s.r.settings.resolve(given)
	if missing != "" {
		s.r.refuse("%s is %s: want a setting %s, which is missing", s.nameOf(name), shown(strconv.Quote(given)),
			strings.Trim(missing, "%"))
		return "", false
	}
	return text, true
}

// texts returns an array of texts.
func (s *section) texts(name string) (texts []string) {
	value, ok := s.findMember(name)
	if s != nil && s.file == hostFile && s.r.settings.hasBelow(s.settingOf(name)) {
		s.r.refuse("the settings %s__0 and so on replace %s: want the array in the file",
			strings.ReplaceAll(s.settingOf(name), ":", "__"), s.nameOf(name))
	}
	if ok && json.Unmarshal(value, &texts) != nil {
		s.refuseValue(name, value, `an array of texts, such as ["a", "b"]`)
	}
	return texts
}

// integer returns a whole number, which may be a text.
func (s *section) integer(name, want string) (n int, ok bool) {
	value, ok := s.findMember(name)
	if !ok {
		return 0, false
	}
	text, _ := plainText(value)
	wide, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32) // as in .NET
	if err != nil {
		s.refuseValue(name, value, want+notResolved(text))
		return 0, false
	}
	return int(wide), true
}

// count returns a number of which zero or less means the default.
func (s *section) count(name string) int {
	n, _ := s.integer(name, "a whole number")
	return max(n, 0)
}

// milliseconds returns a duration in milliseconds, of which zero or less means the default.
func (s *section) milliseconds(name string, ifMissing time.Duration) time.Duration {
	if n, _ := s.integer(name, "a whole number of milliseconds"); n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	return ifMissing
}

// boolean returns true or false, which may be a text.
func (s *section) boolean(name string) bool {
	value, ok := s.findMember(name)
	if !ok {
		return false
	}
	text, _ := plainText(value)
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true":
		return true
	case "false":
		return false
	}
	s.refuseValue(name, value, "true or false"+notResolved(text))
	return false
}

// notResolved explains that a number is no place for a setting.
func notResolved(text string) string {
	if named.MatchString(text) {
		return ", because Azure takes settings between percent signs for texts only"
	}
	return ""
}

// spans matches a duration as .NET writes it.
var spans = regexp.MustCompile(`^\s*(?:(\d{1,4})\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d{1,7})?)?\s*$`)

const (
	hoursOfDay = 24
	sixty      = 60
	wantSpan   = `a duration "hh:mm:ss", or "d.hh:mm:ss" with days`
)

// span returns a duration in the form "hh:mm:ss". A number alone would be days in .NET, so span refuses it.
func (s *section) span(name string) (d time.Duration, ok bool) {
	value, ok := s.findMember(name)
	if !ok {
		return 0, false
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		if d, ok = parseSpan(text); ok {
			return d, true
		}
	}
	s.refuseValue(name, value, wantSpan)
	return 0, false
}

// parseSpan reads a duration as .NET writes it.
func parseSpan(text string) (d time.Duration, ok bool) {
	parts := spans.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	var n [5]float64
	for i, part := range parts[1:] {
		n[i], _ = strconv.ParseFloat(part, 64) // an empty part is 0
	}
	if n[1] >= hoursOfDay || n[2] >= sixty || n[3] >= sixty {
		return 0, false
	}
	seconds := ((n[0]*hoursOfDay+n[1])*sixty+n[2])*sixty + n[3]
	return time.Duration(seconds)*time.Second + time.Duration(math.Round(n[4]*float64(time.Second))), true
}

// refuseUnknown refuses members that nothing reads: the host of Azure ignores them, and so ignores a slip of the pen.
func (s *section) refuseUnknown(known []string, earlier map[string]string) {
	for _, m := range s.allMembers() {
		key := strings.ToLower(m.name)
		if slices.ContainsFunc(known, func(name string) bool { return strings.EqualFold(name, key) }) {
			continue
		}
		if advice, ok := earlier[key]; ok {
			s.r.refuse("%s is of extension 3.x: %s", s.nameOf(m.name), advice)
			continue
		}
		s.r.refuse("%s is not known: want %s; Azure ignores an unknown name without a word", s.nameOf(m.name),
			alternatives(m.name, known))
	}
}

// alternatives proposes names for an unknown one.
func alternatives(name string, known []string) string {
	if near := spelling.Nearest(name, known); len(near) > 0 {
		return strings.Join(near, " or ")
	}
	return "one of " + strings.Join(known, ", ") + ", or none"
}

const mostShown = 80 // bytes of a value in an error

// secrets finds what may be a key, and must not be in an error.
var secrets = regexp.MustCompile(`(?i)(key|secret|password|signature|sig|token)\s*=|[a-z0-9+/]{40,}`)

// shown returns a value for an error, without secrets.
func shown(value string) string {
	switch {
	case secrets.MatchString(value):
		return "a text that may have a secret"
	case len(value) > mostShown:
		return strings.ToValidUTF8(value[:mostShown], "") + "…"
	}
	return value
}

// refuse adds an error.
func (r *reader) refuse(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// notice adds a notice.
func (r *reader) notice(format string, args ...any) {
	r.app.Notices = append(r.app.Notices, fmt.Sprintf(format, args...))
}
