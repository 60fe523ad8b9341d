package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// navigationFile orders the pages, for the site and for the index.
const navigationFile = "docs/.site/navigation.json"

// A group is a part of the navigation.
type group struct {
	Title string `json:"title"`
	Pages []page `json:"pages"`
}

// A page is an entry of the navigation. Page is its file below docs.
type page struct {
	Page  string `json:"page"`
	Title string `json:"title"`
	About string `json:"about"`
}

// navigation reads the groups, with the pages that exist: a page may be planned before it is written.
func navigation(top string) (groups []group, err error) {
	text, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(navigationFile)))
	if err != nil {
		return nil, err
	}
	var planned []group
	if err := json.Unmarshal(text, &planned); err != nil {
		return nil, fmt.Errorf("%s: %w", navigationFile, err)
	}
	for _, g := range planned {
		written := group{Title: g.Title}
		for _, p := range g.Pages {
			if _, err := os.Stat(filepath.Join(top, "docs", filepath.FromSlash(p.Page))); err == nil {
				written.Pages = append(written.Pages, p)
			}
		}
		if len(written.Pages) > 0 {
			groups = append(groups, written)
		}
	}
	return groups, nil
}

// indexPage is docs/README.md: the navigation as a list, for readers on a code host.
func indexPage(top string) (string, error) {
	groups, err := navigation(top)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(`# Documentation of changefeed

changefeed is a change feed processor for Azure Cosmos DB, with an embedded store, a server and a command. If you are
new, [start in five minutes](start.md): you need no account.
`)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.Title)
		for _, p := range g.Pages {
			fmt.Fprintf(&b, "- [%s](%s): %s\n", p.Title, p.Page, p.About)
		}
	}
	b.WriteString(`
This page and [reference/options.md](reference/options.md) are generated: change the navigation in
` + "`" + navigationFile + "`" + ` or the doc comments, then call ` + "`make reference`" + `. ` + "`make site`" + ` builds these pages
as a site with a search.
`)
	return b.String(), nil
}
