package notes

import (
	"strings"
	"testing"
)

// Notes as version 0.1 writes them are read, also with the members that later versions of the same form may add. A
// note of a later form is an error that names both versions: as a note of this form it would be misread.
func TestNotesOfALaterFormAreRefused(t *testing.T) {
	in := Place{Position: `"7"`, LSN: 7, Min: "", Max: "FF", Partitions: []Partition{{ID: "0", Min: "", Max: "FF"}}}
	name := Name("", "FF", in.Partitions)
	read := map[string]func(text string) error{
		`"open":[8,1]`:                      func(text string) error { _, err := ReadDone(text, in); return err },
		`"keys":["[\"Oslo\"]"],"since":[5]`: func(text string) error { _, err := ReadHeld(text, in); return err },
		`"keys":[{"key":"[\"Oslo\"]","from":"\"3\"","lsn":4}]`: func(text string) error {
			_, err := ReadAside(text, in)
			return err
		},
		`"changes":[{"key":"[\"Oslo\"]","lsn":4,"id":"a"}]`: func(text string) error { _, err := ReadSkips(text, in); return err },
	}
	for members, readNote := range read {
		note := `{"at":"\"7\"","partition":"` + name + `",` + members
		for _, end := range []string{`}`, `,"version":1}`, `,"later":true}`} {
			if err := readNote(note + end); err != nil {
				t.Errorf("%s: %v", note+end, err)
			}
		}
		err := readNote(note + `,"version":2}`)
		if err == nil || !strings.Contains(err.Error(), "version is 2: want 1 at most") {
			t.Errorf("%s of version 2: %v", note, err)
		}
	}
}
