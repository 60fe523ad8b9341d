package hostfile

import (
	"fmt"
	"iter"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/spelling"
)

// pairs returns the keys and values of a mapping, and blames all that is none. at is the place of the node.
func (r *reader) pairs(node *yaml.Node, at string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(*yaml.Node, *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			r.blame(node.Line, "%s is %s: want keys with values", at, describe(node))
			return
		}
		var seen []string
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], resolve(node.Content[i+1])
			switch {
			case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
				r.blame(key.Line, "%s has a key that is %s: want a name; what units share stands in %s", at,
					describe(key), defaultsKey)
				continue
			case slices.Contains(seen, key.Value):
				r.blame(key.Line, "%s.%s is there twice: want it once", at, key.Value)
				continue
			}
			seen = append(seen, key.Value)
			if !yield(key, value) {
				return
			}
		}
	}
}

// readValues reads the options of a mapping.
func (r *reader) readValues(node *yaml.Node, at string, options []Option) (values []Value) {
	names := map[string]bool{}
	for key, node := range r.pairs(node, at) {
		option, isFile := findOption(options, key.Value)
		switch {
		case option == nil:
			r.blameUnknown(key, at, options)
			continue
		case names[option.Name]:
			r.blame(key.Line, "%s.%s and %[2]s%s are both there: want one of them", at, option.Name, fileEnding)
			continue
		}
		names[option.Name] = true
		if option.IsList && node.Kind == yaml.SequenceNode && len(node.Content) > 0 {
			values = append(values, r.readList(node, at+"."+key.Value, option.Name)...)
			continue
		}
		if text, ok := r.readText(node, at+"."+key.Value, option.IsSecret && !isFile); ok {
			if isFile {
				text, ok = r.readSecret(text, at+"."+key.Value, key.Line)
			}
			if ok {
				values = append(values, Value{option.Name, text, key.Line})
			}
		}
	}
	return values
}

// readList reads the values of an option that is a list.
func (r *reader) readList(node *yaml.Node, at, name string) (values []Value) {
	for i, n := range node.Content {
		n = resolve(n)
		if text, ok := r.readText(n, fmt.Sprintf("%s[%d]", at, i), false); ok {
			values = append(values, Value{name, text, n.Line})
		}
	}
	return values
}

// findOption returns the option of a key, and whether the key names a file with its value.
func findOption(options []Option, key string) (o *Option, isFile bool) {
	name, isFile := strings.CutSuffix(key, fileEnding)
	for i := range options {
		switch {
		case options[i].Name == key:
			return &options[i], false
		case isFile && options[i].IsSecret && options[i].Name == name:
			return &options[i], true
		}
	}
	return nil, false
}

// blameUnknown blames a key that is no option of a unit, with keys that are similar.
func (r *reader) blameUnknown(key *yaml.Node, at string, options []Option) {
	if slices.Contains(r.handlerKeys(), key.Value) && at == defaultsKey {
		r.blame(key.Line, "%s.%s is a handler: want it in a unit", at, key.Value)
		return
	}
	for _, k := range r.kinds {
		if k.Flag != "" && k.Flag == key.Value {
			r.blame(key.Line, "%s.%s is unknown: want the key %s of a unit in its place", at, key.Value, k.Key)
			return
		}
	}
	isElsewhere := slices.ContainsFunc(r.allOptions(), func(o Option) bool { return o.Name == key.Value })
	if isElsewhere {
		r.blame(key.Line, "%s.%s does not fit the handler of this unit: leave it out", at, key.Value)
		return
	}
	var names []string
	for _, o := range options {
		names = append(names, o.Name)
	}
	text := "want the name of a flag without the dashes"
	if near := spelling.Nearest(strings.TrimLeft(key.Value, "-"), names); len(near) > 0 {
		text = "do you mean " + strings.Join(near, " or ") + "?"
	}
	r.blame(key.Line, "%s.%s is unknown: %s", at, key.Value, text)
}

// readCommand reads the value of a handler: a text or, for a program, a list of texts.
func (r *reader) readCommand(node *yaml.Node, at string, isList bool) (command []string) {
	nodes := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode && isList && len(node.Content) > 0 {
		nodes = node.Content
	}
	for i, n := range nodes {
		n = resolve(n)
		switch {
		case n.Kind != yaml.ScalarNode && n != node:
			r.blame(n.Line, "%s[%d] is %s: want a text, in quotes if it has a colon and a blank", at, i, describe(n))
			return nil
		case n.Kind != yaml.ScalarNode && isList:
			r.blame(n.Line, "%s is %s: want a program, or a list of a program and its arguments", at, describe(n))
			return nil
		}
		text, ok := r.readText(n, at, false)
		if !ok {
			return nil
		}
		command = append(command, text)
	}
	return command
}

// variableForm is the form of an environment variable in a text, and $$ is a dollar.
var variableForm = regexp.MustCompile(`\$\$|\$\{[^}]*\}`)

// variableName is the form of the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// secretForm is the form of a secret: variables, and nothing else.
var secretForm = regexp.MustCompile(`^(\$\{[^}]*\})+$`)

// readText reads a scalar with its environment variables. A secret must be a variable alone.
func (r *reader) readText(node *yaml.Node, at string, isSecret bool) (text string, ok bool) {
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		r.blame(node.Line, "%s is %s: want a value", at, describe(node))
		return "", false
	}
	if node.Tag == "!!binary" {
		r.blame(node.Line, "%s is binary data: want a text", at)
		return "", false
	}
	if isSecret && !secretForm.MatchString(node.Value) {
		r.blame(node.Line, "%s is a secret: want ${NAME}, an environment variable, or %s%s, the path of a file", at,
			at[strings.LastIndexByte(at, '.')+1:], fileEnding)
		return "", false
	}
	if hasPassword(node.Value) {
		r.blame(node.Line, "%s has a password, which is a secret: want ${NAME} in its place, an environment variable", at)
		return "", false
	}
	ok = true
	user := userInURL(node.Value)
	text = variableForm.ReplaceAllStringFunc(node.Value, func(found string) string {
		if found == "$$" {
			return "$"
		}
		variable := found[2 : len(found)-1]
		value, isSet := os.LookupEnv(variable)
		switch {
		case !variableName.MatchString(variable):
			r.blame(node.Line, "%s has %s: want ${NAME} for an environment variable, or $$ for a dollar", at, found)
			ok = false
		case !isSet:
			r.blame(node.Line, "%s needs $%s: the environment has no such variable", at, variable)
			ok = false
		case strings.Contains(user, found) && !userForm.MatchString(value):
			r.blame(node.Line, "%s has $%s before an @: want its value as a URL has it, with %%2F for / and the like", at,
				variable)
			ok = false
		}
		return value
	})
	if ok && isSecret && text == "" { // without the secret, requests would be unsigned, for example
		r.blame(node.Line, "%s is %s: the variable is empty: want the secret in it", at, node.Value)
		return "", false
	}
	return text, ok
}

// userForm is the form of a user and a password in a URL. With other characters the URL would be another one, and a
// part of the password would be its host or its path, which are no secrets.
var userForm = regexp.MustCompile(`^([A-Za-z0-9._~!$&()*+,;=:-]|%[0-9A-Fa-f]{2})*$`)

// userInURL returns what stands between :// and @ in a text whose variables are not replaced; empty if nothing does.
func userInURL(text string) string {
	_, rest, _ := strings.Cut(text, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest[:max(0, strings.LastIndexByte(rest, '@'))]
}

// passwordForm finds a password in a text that is no valid URL.
var passwordForm = regexp.MustCompile(`://[^/?#@:]*:[^@]+@`)

// hasPassword reports whether a text is a URL with a password, or with a token of NATS, that is written out.
func hasPassword(text string) bool {
	if !strings.Contains(text, "://") {
		return false
	}
	text = variableForm.ReplaceAllString(text, "")
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return passwordForm.MatchString(text)
	case u.User == nil:
		return false
	}
	password, isThere := u.User.Password()
	isToken := !isThere && u.User.Username() != "" && (u.Scheme == "nats" || u.Scheme == "tls")
	return password != "" || isToken
}

// maxSecret is the largest size of a file with a secret.
const maxSecret = 64 << 10

// readSecret reads the file with a secret, without the line end. An error has no part of the content.
func (r *reader) readSecret(path, at string, line int) (text string, ok bool) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Size() > maxSecret:
		r.blame(line, "%s is %s: the file has %d bytes: want at most %d", at, path, info.Size(), maxSecret)
		return "", false
	case err == nil && !info.IsDir() && !info.Mode().IsRegular(): // a read might have no end
		r.blame(line, "%s is %s: it is a pipe or a device: want a file, which is read again at each SIGHUP", at, path)
		return "", false
	}
	content, readErr := os.ReadFile(path)
	if err != nil || readErr != nil {
		r.blame(line, "%v", usage.Path(at, path, readErr))
		return "", false
	}
	text = strings.TrimSpace(string(content))
	if text == "" {
		r.blame(line, "%s is %s: the file is empty: want the secret in it", at, path)
		return "", false
	}
	return text, true
}

// resolve returns the node that an alias names.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// describe names a node for people.
func describe(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode && len(node.Content) == 0:
		return "an empty list"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Tag == "!!null":
		return "empty"
	}
	return node.Value
}
