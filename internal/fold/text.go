package fold

import (
	"fmt"
	"strings"
)

// maxText bounds the text of an error.
const maxText = 8 << 10

// Text is the text of an error, cut off where it is too long.
func Text(err error) string {
	text := err.Error()
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:maxText], ""), len(text))
}

// Bounded is an error for a line of a log: itself or, if that is too long, its text.
func Bounded(err error) any {
	if len(err.Error()) > maxText {
		return Text(err)
	}
	return err
}

// Names lists the first of many names, and says how many more there are.
func Names(names []string) string {
	if len(names) <= MaxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:MaxNamed], ", "), len(names)-MaxNamed)
}

// MaxNamed is how many of many an error names.
const MaxNamed = 4
