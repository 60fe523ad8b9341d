package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fencedBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	codeSpan    = regexp.MustCompile("`[^`\n]+`")
	pageLink    = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\))?)\)`)
	pageHeading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// markdownFiles returns the documents of the repository, with those of the clients and examples.
func markdownFiles(t *testing.T, top string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (strings.HasPrefix(name, ".") && name != ".." || name == "node_modules" || name == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			rel, err := filepath.Rel(top, p)
			all = append(all, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchorsOf returns the anchors of a document as code hosts make them: lower case, without punctuation, dashes for
// spaces, and a number for each further heading of the same text.
func anchorsOf(text string) map[string]bool {
	all, seen := map[string]bool{}, map[string]int{}
	for _, m := range pageHeading.FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
		title := strings.ReplaceAll(linkText.ReplaceAllString(m[1], "$1"), "`", "")
		slug := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		if n := seen[slug]; n > 0 {
			all[fmt.Sprintf("%s-%d", slug, n)] = true
		} else {
			all[slug] = true
		}
		seen[slug]++
	}
	return all
}

// deadLink says what is wrong with a link of a document; empty if nothing is.
func deadLink(top, doc, target string) string {
	if u, err := url.Parse(target); err != nil {
		return err.Error()
	} else if u.Scheme != "" {
		if u.Scheme != "mailto" && u.Host == "" {
			return "no host"
		}
		return ""
	}
	file, fragment, _ := strings.Cut(target, "#")
	to := doc
	if file != "" {
		to = path.Join(path.Dir(doc), file)
	}
	if strings.HasPrefix(file, "/") || strings.HasPrefix(to, "../") {
		return "leads out of the repository"
	}
	if _, err := os.Stat(filepath.Join(top, filepath.FromSlash(to))); err != nil {
		return "no such file"
	}
	if fragment == "" || !strings.HasSuffix(to, ".md") {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(to)))
	if err != nil {
		return err.Error()
	}
	if !anchorsOf(string(text))[fragment] {
		return "no such heading"
	}
	return ""
}

// Each link of a document leads to a file that exists, and each anchor to a heading.
func TestEachLinkLeadsSomewhere(t *testing.T) {
	const top = "../.."
	links := 0
	for _, doc := range markdownFiles(t, top) {
		text, err := os.ReadFile(filepath.Join(top, doc))
		if err != nil {
			t.Fatal(err)
		}
		prose := codeSpan.ReplaceAllString(fencedBlock.ReplaceAllString(string(text), ""), "")
		for _, m := range pageLink.FindAllStringSubmatch(prose, -1) {
			links++
			if why := deadLink(top, doc, m[1]); why != "" {
				t.Errorf("%s: the link %s: %s", doc, m[1], why)
			}
		}
	}
	if links < 300 {
		t.Errorf("%d links are found: the pattern misses some", links)
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	top := t.TempDir()
	if err := os.WriteFile(filepath.Join(top, "a.md"), []byte("# A `b` (c)\n\n## A b c\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"a.md": "", "#a-b-c": "", "a.md#a-b-c-1": "", "https://example.com/x": "",
		"b.md": "no such file", "a.md#d": "no such heading", "../a.md": "leads out of the repository",
		"https:///x": "no host", "/a.md": "leads out of the repository",
	} {
		if got := deadLink(top, "a.md", target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

// A page that the navigation does not name cannot be found by readers of the site.
func TestEachPageIsInTheNavigation(t *testing.T) {
	text, err := os.ReadFile("../../" + navigationFile)
	if err != nil {
		t.Fatal(err)
	}
	var groups []group
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, g := range groups {
		for _, p := range g.Pages {
			if slices.Contains(named, p.Page) {
				t.Errorf("the navigation names %s twice", p.Page)
			}
			if p.Title == "" || p.About == "" {
				t.Errorf("%s has no title or no text", p.Page)
			}
			named = append(named, p.Page)
		}
	}
	for _, doc := range markdownFiles(t, "../..") {
		page, isPage := strings.CutPrefix(doc, "docs/")
		// The decisions are named by the page of decisions.
		if !isPage || page == "README.md" || regexp.MustCompile(`^decisions/\d`).MatchString(page) {
			continue
		}
		if !slices.Contains(named, page) {
			t.Errorf("%s is not in %s: add it to a group", doc, navigationFile)
		}
	}
}
