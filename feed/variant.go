package feed

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/fold"
)

// Variant describes the handler, the program and the options of instances of a unit: instances with different variants
// may treat the same change differently.
type Variant struct {
	Handler string // Options.Variant of package changefeed; empty if not set
	Program string // module and version of the program, from the build information; empty if unknown
	Options string // the options that decide the fate of a change, as words such as "max-attempts=5 dead-letters"

	Instances []string // names of the live instances with this variant, sorted
}

// Hash returns 8 hexadecimal digits that stand for the variant, without the instances: for a metric or a comparison.
func (v Variant) Hash() string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %q %q", v.Handler, v.Program, v.Options)
	return fmt.Sprintf("%08x", h.Sum32())
}

// Variants are the different variants of the live instances of a unit, with the most frequent variant first. Instances
// that do not show a variant, such as those of an older version or of another processor, are left out.
type Variants []Variant

// Differ reports whether instances differ.
func (all Variants) Differ() bool { return len(all) > 1 }

// String names the instances of each variant, and wherein the variants differ: "a, b run mail.sh; c runs other.sh". If
// there is a single variant, String names all details.
func (all Variants) String() string {
	parts := make([]string, len(all))
	for i, v := range all {
		run := "run"
		if len(v.Instances) == 1 {
			run = "runs"
		}
		parts[i] = fmt.Sprintf("%s %s %s", fold.Names(v.Instances), run, strings.Join(all.distinguish(v), ", "))
	}
	return strings.Join(parts, "; ")
}

// distinguish returns the parts of a variant that are not the same in all variants.
func (all Variants) distinguish(v Variant) (parts []string) {
	for _, part := range []struct {
		of      func(Variant) string
		unknown string
	}{
		{func(v Variant) string { return v.Handler }, "a handler without a name"},
		{func(v Variant) string { return v.Program }, "a program of an unknown version"},
		{func(v Variant) string { return v.Options }, "no options"},
	} {
		differs := len(all) == 1 || slices.ContainsFunc(all, func(other Variant) bool {
			return part.of(other) != part.of(v)
		})
		switch text := part.of(v); {
		case differs && text == "":
			parts = append(parts, part.unknown)
		case differs:
			parts = append(parts, text)
		}
	}
	return parts
}

// Difference is a time in which live instances of a unit have different variants, as during an upgrade, or for good if
// an instance was forgotten, or if two programs use the same name by mistake.
type Difference struct {
	Since    time.Time // when this instance noticed the difference
	Ended    time.Time // zero while the instances differ
	Variants Variants  // at the beginning the different variants, at the end the remaining variant
}
