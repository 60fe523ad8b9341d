package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block is what a test does with a part of a document: a fenced block, or a comment that readers do not see.
type block struct {
	line    int
	lang    string // of a fenced block; of a comment its kind, setup or stop
	text    string
	notRun  string // the reason, of a block that cannot be run here
	network string // what the block fetches
	until   string // what the block says when it is ready, of a block that runs until Ctrl-C
	file    string // under which name readers save the block
}

var (
	comment   = regexp.MustCompile(`(?s)^<!--\s*([a-z ]+?)(?::\s*(.*?))?\s*-->$`)
	pageFence = regexp.MustCompile("^( *)```+([a-z]*)$")
)

// blocksOf returns the fenced blocks and the comments of a document, in order. These comments stand before a fenced
// block:
//
//	<!-- not run: needs an account -->   the block cannot run in a test, and why
//	<!-- network: fetches modules -->    from here on the page is run only with -pages.network
//	<!-- until: is ready -->             the block runs until Ctrl-C; it is ready when it has said this
//	<!-- file: main.go -->               readers save the block under this name
//
// And these stand alone:
//
//	<!-- setup: COMMANDS -->             what a page takes for granted, such as a server
//	<!-- stop -->                        here the reader ends what runs until Ctrl-C
func blocksOf(text string) (all []block, err error) {
	lines := strings.Split(text, "\n")
	var marks block
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "<!--"):
			begin := i
			for !strings.HasSuffix(lines[i], "-->") {
				if i++; i == len(lines) {
					return nil, fmt.Errorf("line %d: the comment does not end", begin+1)
				}
			}
			done, err := marks.mark(strings.Join(lines[begin:i+1], "\n"))
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", begin+1, err)
			}
			if done.lang != "" {
				done.line = begin + 1
				all = append(all, done)
			}
		case pageFence.MatchString(line):
			m := pageFence.FindStringSubmatch(line)
			b := marks
			b.line, b.lang, marks = i+1, m[2], block{}
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
				b.text += strings.TrimPrefix(lines[i], m[1]) + "\n"
			}
			b.imply()
			all = append(all, b)
		case strings.TrimSpace(line) != "" && marks != (block{}):
			return nil, fmt.Errorf("line %d: a mark must stand right before a fenced block", i+1)
		}
	}
	return all, nil
}

// Some commands say by themselves that a block fetches something, or needs what a test does not have.
var (
	fetches   = regexp.MustCompile(`\b(git clone|npm ci|npm install|pip install|go get|go install)\b`)
	elsewhere = regexp.MustCompile(`(?m)^(?:\$ )?(?:sudo )?(docker|kubectl|helm|kustomize|az|systemctl|npm publish)\b`)
)

// account is an address of an account.
var account = regexp.MustCompile(`\.documents\.azure\.com|\bcosmos:`)

// imply sets the marks of a block of commands that follow from the commands.
func (b *block) imply() {
	if b.file != "" || b.lang != "sh" && b.lang != "console" {
		return
	}
	if m := elsewhere.FindStringSubmatch(b.text); m != nil && b.notRun == "" {
		b.notRun = "needs " + m[1]
	}
	if account.MatchString(b.text) && b.notRun == "" {
		b.notRun = "needs an account of Azure Cosmos DB"
	}
	if m := fetches.FindStringSubmatch(b.text); m != nil && b.network == "" && b.notRun == "" {
		b.network = m[1] + " fetches something"
	}
}

// mark reads a comment. It adds a mark for the next fenced block, or returns a block of its own.
func (b *block) mark(text string) (alone block, err error) {
	m := comment.FindStringSubmatch(text)
	if m == nil {
		return block{}, fmt.Errorf("unknown comment %q", text)
	}
	kind, value := m[1], m[2]
	known := slices.Contains([]string{"not run", "network", "until", "file", "setup"}, kind)
	switch {
	case known && value == "":
		return block{}, fmt.Errorf("the comment %q has no text after a colon", text)
	case !known && value == "" && kind != "stop":
		return block{}, nil // of another test, or of nobody
	}
	switch kind {
	case "not run":
		b.notRun = value
	case "network":
		b.network = value
	case "until":
		b.until = value
	case "file":
		b.file = value
	case "setup", "stop":
		return block{lang: kind, text: value + "\n"}, nil
	default:
		return block{}, fmt.Errorf("unknown comment %q: want not run, network, until, file, setup or stop", text)
	}
	return block{}, nil
}

func TestMarksOfBlocksAreRead(t *testing.T) {
	got, err := blocksOf("<!-- setup: a\nb -->\n<!-- until: ready -->\n```sh\nserve\n```\n\ntext <!-- no -->\n" +
		"<!-- recorded -->\n```go\nx\n```\n\n```console\n$ docker ps\n```\n\n```sh\ngit clone x\n```\n<!-- stop -->\n")
	want := []block{
		{line: 1, lang: "setup", text: "a\nb\n"},
		{line: 4, lang: "sh", text: "serve\n", until: "ready"},
		{line: 10, lang: "go", text: "x\n"},
		{line: 14, lang: "console", text: "$ docker ps\n", notRun: "needs docker"},
		{line: 18, lang: "sh", text: "git clone x\n", network: "git clone fetches something"},
		{line: 21, lang: "stop", text: "\n"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	for _, wrong := range []string{
		"<!-- not run -->\n```sh\nx\n```\n", "<!-- nto run: why -->\n", "<!-- until: x -->\n\ntext\n", "<!-- file: x\n",
	} {
		if got, err := blocksOf(wrong); err == nil {
			t.Errorf("%q is taken as %+v", wrong, got)
		}
	}
}
