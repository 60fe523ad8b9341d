package unit

import (
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// Commands are the places and the name that a command about a unit needs. Package admin recommends commands without
// them, because admin knows no address; whoever pastes a command into a shell needs them.
type Commands struct {
	Leases  string // address of the lease container; empty leaves all commands as they are
	Name    string // of the unit
	Source  string // address of the container that the unit reads, if several units have the name; otherwise empty
	Letters string // address or file of the letters; empty if unknown
}

// Placeholders in a command for unknown places.
const (
	UnknownLetters = "ADDRESS_OF_LETTERS"
	UnknownLeases  = "ADDRESS_OF_LEASES"
	someFunction   = Unnamed + "NAME_OF_FUNCTION"
)

// LettersPath is the partition key path of a container for letters.
const LettersPath = "/key"

// recommended is a command in an advice, with the flags that the advice gives it.
var recommended = regexp.MustCompile(`changefeed (?:leases(?: (?:resume|reset|skip|gc|explain|delete|history|snapshot))?|` +
	`dlq (?:list|retry|release|drop))\b(?: --all| --key KEY| --to START)?`)

// Complete returns an advice whose commands can be pasted into a shell: an advice that ends with a command has no full
// stop, because people copy up to the end of the line. keys are the held keys of the advice: the first key replaces
// KEY.
func (c Commands) Complete(advice string, keys ...string) string {
	if c.Leases == "" {
		return advice
	}
	if at := recommended.FindAllStringIndex(advice, -1); len(at) > 0 && advice[at[len(at)-1][1]:] == "." {
		advice = strings.TrimSuffix(advice, ".")
	}
	return recommended.ReplaceAllStringFunc(advice, func(command string) string { return c.completed(command, keys) })
}

// Recommended returns the commands in an advice, as Complete completes them.
func (c Commands) Recommended(advice string, keys ...string) (all []string) {
	if c.Leases == "" {
		return nil
	}
	for _, command := range recommended.FindAllString(advice, -1) {
		all = append(all, c.completed(command, keys))
	}
	return all
}

// completed adds the place and the name to a command, before the flags.
func (c Commands) completed(command string, keys []string) string {
	verb, flags := command, ""
	if i := strings.Index(command, " --"); i >= 0 {
		verb, flags = command[:i], command[i:]
	}
	if len(keys) > 0 {
		flags = strings.Replace(flags, "KEY", terminal.ShellWord(keys[0]), 1)
	}
	at, isLetters := c.Leases, strings.HasPrefix(verb, "changefeed dlq ")
	if isLetters {
		if at = c.Letters; at == "" {
			at = UnknownLetters
		}
	}
	text := verb + " " + terminal.ShellWord(at)
	if verb == "changefeed leases" {
		return text + flags // it shows all units
	}
	name := c.Name
	if isLetters && name == Unnamed {
		name = someFunction
	}
	text += " --name " + terminal.ShellWord(name)
	if c.Source != "" {
		text += " --source " + terminal.ShellWord(c.Source)
	}
	isRequest := strings.HasSuffix(verb, " retry") || strings.HasSuffix(verb, " release")
	if isRequest && c.needsLeases() {
		text += " --leases " + terminal.ShellWord(c.Leases)
	}
	return text + flags
}

// needsLeases reports whether the commands about letters do not find the leases by themselves: those find them under
// the usual name, beside the letters.
func (c Commands) needsLeases() bool {
	leases, err := place.Parse("", c.Leases)
	if err != nil || c.Letters == "" {
		return true
	}
	letters, err := place.Parse("", c.Letters)
	return err != nil || letters.Beside(DefaultContainer).String() != leases.String()
}

// CommandsOf returns the commands about the unit with a name, whose leases are at an address; among are the containers
// beside the leases, where the letters may be.
func CommandsOf(leases place.Address, name string, among []*place.Container) Commands {
	return Commands{Leases: leases.String(), Name: name, Letters: lettersAmong(among)}
}

// lettersAmong returns the address of the only container for letters; empty if there is none, or if there are several.
func lettersAmong(all []*place.Container) (found string) {
	for _, c := range all {
		if !slices.Equal(c.Paths, []string{LettersPath}) {
			continue
		}
		if found != "" {
			return ""
		}
		found = c.Address.String()
	}
	return found
}
