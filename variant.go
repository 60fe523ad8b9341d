package changefeed

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/changefeed/feed"
)

// maxVariant bounds Options.Variant, because each instance writes the variant with every renewal.
const maxVariant = 200

// variant returns the variant of an instance with these options, as the other instances see it. Options that may well
// differ are left out: the name, the times of leases, sizes, and the number of batches at once.
func (o Options) variant() feed.Variant {
	words := []string{fmt.Sprintf("timeout=%v", o.HandlerTimeout)}
	for _, word := range []struct {
		text string
		is   bool
	}{
		{fmt.Sprintf("max-attempts=%d", o.OnFailure.MaxAttempts), o.OnFailure.MaxAttempts > 0},
		{fmt.Sprintf("max-age=%v", o.OnFailure.MaxAge), o.OnFailure.MaxAge > 0},
		{"dead-letters", o.OnFailure.DeadLetters != nil},
		{"hold", o.OnFailure.HoldKeys},
		{"manual", o.Manual},
		{"filter", o.Filter != nil},
		{"concurrent", o.Concurrency > 1},
	} {
		if word.is {
			words = append(words, word.text)
		}
	}
	return feed.Variant{Handler: o.Variant, Program: programVersion(), Options: strings.Join(words, " ")}
}

// programVersion returns the module and the version of this program: of a release, or with the commit. A build without
// either has the version (devel), which says nothing about its sources.
var programVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return versionOf(info)
	}
	return ""
})

// versionOf returns the module and the version of a build. A build has a commit and no version if the module is in a
// directory of a repository without a module at the top.
func versionOf(info *debug.BuildInfo) string {
	text := strings.TrimSpace(info.Main.Path + " " + info.Main.Version)
	of := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" })
	if of >= 0 && info.Main.Version == "(devel)" {
		text += " " + info.Settings[of].Value
	}
	return text
}
