// Package notices contains the licences and notices of all software linked into the command.
//
// The text is in the repository, so a build needs no network. Package main in collect regenerates the text from the
// modules that the go command lists for every system and with every tag; a test compares its modules with those of
// go.mod.
package notices

import _ "embed"

// Text is the whole text, for people: each list of modules is followed by their licence or notice.
//
//go:embed notices.txt
var Text string
