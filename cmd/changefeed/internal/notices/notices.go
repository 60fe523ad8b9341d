// Package notices has the licences and notices of all that is linked into the command: the modules of others, and Go.
//
// The text is kept in the repository, so that a build needs no network. Package main in collect writes it anew, from the
// modules that the go command lists for every system and with every tag; a test compares its modules with those of go.mod.
package notices

import _ "embed"

// Text is all of it, for people: after each list of modules their licence, or notice.
//
//go:embed notices.txt
var Text string
