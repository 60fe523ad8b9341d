package function

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// newCommand makes the command of the app's custom handler, which will listen at an address. The environment is that of
// the program without the variables of the host.
func (a *App) newCommand(environment []string, address, id string) *exec.Cmd {
	_, port, _ := net.SplitHostPort(address) // the address is ours
	environment = append(environment[:len(environment):len(environment)],
		"FUNCTIONS_CUSTOMHANDLER_PORT="+port, "FUNCTIONS_HTTPWORKER_PORT="+port,
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID="+id, "FUNCTIONS_HTTPWORKER_ID="+id,
		"FUNCTIONS_APP_ROOT_PATH="+a.Dir)
	lookup := variables(environment)
	p := a.Program
	words := append(append(append([]string{}, p.Arguments...), p.WorkerPath), p.WorkerArguments...)
	if p.WorkerPath != "" {
		words[len(p.Arguments)] = `"` + p.WorkerPath + `"`
	}
	// An argument with a blank is two arguments, unless it has its own quotes.
	arguments := splitArguments(expandVariables(strings.Join(words, " "), lookup))
	cmd := exec.Command(a.findExecutable(expandVariables(p.Executable, lookup)), arguments...)
	cmd.Env, cmd.Dir = environment, filepath.Join(a.Dir, p.WorkingDirectory)
	return cmd
}

// findExecutable returns the path of a program: a file of the app, or else what the system finds under the name.
func (a *App) findExecutable(name string) string {
	file := name
	if !filepath.IsAbs(file) {
		file = filepath.Join(a.Dir, name)
	}
	if info, err := os.Stat(file); err == nil && !info.IsDir() {
		return file
	}
	return name
}

// variables returns a function that looks a variable up in an environment: the last of several counts.
func variables(environment []string) func(name string) (string, bool) {
	values := map[string]string{}
	for _, v := range environment {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	return func(name string) (string, bool) { value, ok := values[name]; return value, ok }
}

// unknownVariable matches what is left of a text when its variables are replaced.
var unknownVariable = regexp.MustCompile(`%.+?%`)

// expandVariables replaces the names between percent signs. Unknown names are removed.
func expandVariables(text string, lookup func(string) (string, bool)) string {
	var expanded strings.Builder
	for {
		before, rest, found := strings.Cut(text, "%")
		expanded.WriteString(before)
		if !found {
			break
		}
		name, after, isPair := strings.Cut(rest, "%")
		value, isKnown := lookup(name)
		if !isPair || !isKnown { // the second sign may begin a name
			expanded.WriteByte('%')
			text = rest
			continue
		}
		expanded.WriteString(value)
		text = after
	}
	return unknownVariable.ReplaceAllString(expanded.String(), "")
}

// splitArguments splits a command line as .NET does on every system: blanks separate arguments, except in double
// quotes; a backslash counts only before a quote, which it makes a character; two quotes in quotes are one.
func splitArguments(line string) (arguments []string) {
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return arguments
		}
		var argument string
		argument, line = cutArgument(line)
		arguments = append(arguments, argument)
	}
}

// cutArgument returns the first argument of a command line, and the rest.
func cutArgument(line string) (argument, rest string) {
	var text strings.Builder
	isQuoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			n := len(line[i:]) - len(strings.TrimLeft(line[i:], `\`))
			i += n - 1
			if i+1 == len(line) || line[i+1] != '"' {
				text.WriteString(strings.Repeat(`\`, n))
				continue
			}
			text.WriteString(strings.Repeat(`\`, n/2))
			if n%2 == 1 {
				text.WriteByte('"')
				i++
			}
		case c == '"' && isQuoted && i+1 < len(line) && line[i+1] == '"':
			text.WriteByte('"')
			i++
		case c == '"':
			isQuoted = !isQuoted
		case (c == ' ' || c == '\t') && !isQuoted:
			return text.String(), line[i:]
		default:
			text.WriteByte(c)
		}
	}
	return text.String(), ""
}

// freeAddress returns an address of this machine at which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(0)))
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// loopback is the address of this machine, as the host of Azure writes it.
const loopback = "127.0.0.1"
