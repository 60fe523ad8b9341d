package explorer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The present view of the page as a command or program that does the same elsewhere. No text has a key: the environment
// has the key.

// A copied is a text for a language.
type copied struct {
	Language string `json:"language"`
	Text     string `json:"text"`
}

// view describes the present view of the page.
type view struct {
	kind  string // query, item or feed
	at    place.Address
	cli   string // address of the container for the command
	host  string // of the dashboard
	in    string
	query items.Query
	id    string
	isAll bool // mode of a feed
	from  string
}

// copyAs answers with the view of a request in each language.
func (e *Explorer) copyAs(w http.ResponseWriter, r *http.Request) error {
	p, at, err := e.address(r)
	if err != nil {
		return err
	}
	v := view{
		kind: r.FormValue("view"), at: at, cli: p.command(at), host: "http://" + r.Host,
		in: r.FormValue("in"),
	}
	switch v.kind {
	case "query":
		v.query, _, err = queryOf(r)
	case "item":
		if v.id = r.FormValue("id"); v.id == "" {
			err = usage.Error{Err: fmt.Errorf("id is empty: want the id of a document")}
		}
		v.query.Key, err = keyOf(r)
	case "feed":
		var mode arg.Mode
		err = mode.Set(orElse(r.FormValue("mode"), "latest"))
		v.isAll, v.from = mode.IsAll(), orElse(r.FormValue("from"), "now")
		if v.from != "now" && v.from != "beginning" {
			err = cmp.Or(err, error(usage.Error{Err: fmt.Errorf("from is %s: want now or beginning", v.from)}))
		}
	default:
		err = usage.Error{Err: fmt.Errorf("view is %q: want query, item or feed", v.kind)}
	}
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"copies": v.copies()})
	return nil
}

// command is the address of a container for the command.
func (p *shown) command(at place.Address) string {
	if p.Account != nil {
		if endpoint := p.Account(); endpoint != "" {
			return strings.TrimRight(endpoint,
				"/") + "/" + url.PathEscape(at.Database) + "/" + url.PathEscape(at.Container)
		}
	}
	return at.String()
}

// copies are the texts of a view.
func (v view) copies() []copied {
	return []copied{
		{"changefeed", v.command()},
		{"curl", v.curl()},
		{"Go", v.golang()},
		{"C#", v.csharp()},
		{"JavaScript", v.javascript()},
		{"Python", v.python()},
	}
}

// isUnseen reports whether a terminal obeys a character, hides it, or shows its neighbours in another order.
func isUnseen(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// shell quotes a text for a shell, if it needs quotes. Unseen characters are escaped by number, as bash and zsh
// understand, except for the ends of lines.
func shell(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,="
	if text != "" && text[0] != '=' && strings.Trim(text, plain) == "" { // zsh looks for the program after =
		return text
	}
	if !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && isUnseen(r) }) {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case isUnseen(r):
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		case r == '\'' || r == '\\':
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return "$'" + b.String() + "'"
}

// command is the command line of changefeed.
func (v view) command() string {
	words := []string{"changefeed", v.verb()}
	if v.query.Key != "" {
		words = append(words, "--key="+shell(string(v.query.Key)))
	}
	for _, p := range v.query.Parameters {
		words = append(words, "-p", shell(p.Name[1:]+"="+string(p.Value)))
	}
	switch {
	case v.kind == "feed" && v.isAll:
		words = append(words, "--mode", "all", "--from", v.from)
	case v.kind == "feed":
		words = append(words, "--from", v.from, "--meta")
	}
	argument := v.query.Text
	if v.kind == "item" {
		argument = v.id
	}
	if strings.HasPrefix(argument, "-") {
		words = append(words, "--")
	}
	words = append(words, shell(v.cli))
	if v.kind != "feed" {
		words = append(words, shell(argument))
	}
	return strings.Join(words, " ")
}

// verb is the command for the present view.
func (v view) verb() string {
	switch v.kind {
	case "item":
		return "get"
	case "feed":
		return "tail"
	}
	return "query"
}

// curl asks the dashboard.
func (v view) curl() string {
	lines := []string{"curl -sS -G " + shell(v.host+"/store/"+v.kind)}
	if v.kind == "feed" {
		lines[0] = "curl -sS -N -G " + shell(v.host+"/store/feed")
	}
	lines = append(lines, `-H "Authorization: Bearer $CHANGEFEED_UI_KEY"`)
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, "--data-urlencode "+shell(name+"="+value))
		}
	}
	add("in", v.in)
	add("container", v.at.Database+"/"+v.at.Container)
	add("sql", v.query.Text)
	for _, p := range v.query.Parameters {
		add("param", p.Name[1:]+"="+string(p.Value))
	}
	add("id", v.id)
	add("key", string(v.query.Key))
	if v.kind == "feed" {
		add("mode", map[bool]string{true: "all", false: "latest"}[v.isAll])
		add("from", v.from)
	}
	return strings.Join(lines, " \\\n  ")
}

// quoted is a text as a literal, which is the same in Go, C#, JavaScript and Python. Unseen characters are escaped by
// number.
func quoted(text string) string {
	literal, err := json.Marshal(text)
	if err != nil {
		return `""` // a text is always JSON
	}
	var b strings.Builder
	for _, r := range string(literal) {
		if isUnseen(r) && r <= 0xffff { // there is no such number of others in all these languages
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// parts are the values of the partition key, as JSON; none if there is no key.
func (v view) parts() (all []json.RawMessage) {
	if json.Unmarshal([]byte(v.query.Key), &all) != nil {
		return nil
	}
	return all
}
