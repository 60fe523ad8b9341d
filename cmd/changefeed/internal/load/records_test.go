package load

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// piece is what tests compare of a record.
type piece struct {
	line, element int
	text          string
	err           error
}

func pieces(t *testing.T, in io.Reader, at point) (all []piece, places []point) {
	t.Helper()
	s, err := newSplitter(in, at)
	if err != nil {
		t.Fatalf("open input: %v", err)
	}
	for {
		r, err := s.next()
		if err == io.EOF {
			return all, places
		}
		if err != nil {
			t.Fatalf("read input: %v", err)
		}
		if r.err == nil && r.size != int64(len(r.text)) {
			t.Errorf("line %d: %d bytes are counted of %q", r.line, r.size, r.text)
		}
		all = append(all, piece{r.line, r.element, string(r.text), r.err})
		places = append(places, r.next)
	}
}

var splits = []struct {
	name, input string
	want        []piece
}{
	{"nothing", "", nil},
	{"space", " \n\r\n\t", nil},
	{"lines", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", []piece{
		{line: 1, text: `{"id":"a"}`},
		{line: 2, text: `{"id":"b"}`},
	}},
	{"no newline at the end", "{}\n{ }", []piece{{line: 1, text: `{}`}, {line: 2, text: `{ }`}}},
	{"blank lines and spaces", "\n\n {} \r\n\n\t{ }\n", []piece{{line: 3, text: `{}`}, {line: 5, text: `{ }`}}},
	{"byte order mark", "\xef\xbb\xbf{}\n", []piece{{line: 1, text: `{}`}}},
	{"bad line", "{}\n{\"a\":\n[1,2]\n{}\n", []piece{
		{line: 1, text: `{}`},
		{line: 2, text: `{"a":`},
		{line: 3, text: `[1,2]`},
		{line: 4, text: `{}`},
	}},
	{"array", `[{"a":[1,{"b":2}]},{"c":"],}"}]`, []piece{
		{line: 1, element: 1, text: `{"a":[1,{"b":2}]}`},
		{line: 1, element: 2, text: `{"c":"],}"}`},
	}},
	{"empty array", " [ ] ", nil},
	{
		"array over lines", "[\n  {\n    \"a\": \"\\\"]\"\n  },\n  {}\n]\n",
		[]piece{{line: 2, element: 1, text: "{\n    \"a\": \"\\\"]\"\n  }"}, {line: 5, element: 2, text: "{}"}},
	},
	{"values that are no objects", `[1,"a",null,[2,3]]`, []piece{
		{line: 1, element: 1, text: "1"},
		{line: 1, element: 2, text: `"a"`},
		{line: 1, element: 3, text: "null"},
		{line: 1, element: 4, text: "[2,3]"},
	}},
	{"comma at the end", "[{},\n]", []piece{{line: 1, element: 1, text: "{}"}}},
	{"lines after an array", "[{}]\n{}\n", []piece{{line: 1, element: 1, text: "{}"}, {line: 2, text: "{}"}}},
	{"array without an end", "[{},\n{}", []piece{
		{line: 1, element: 1, text: "{}"},
		{line: 2, element: 2, text: "{}"},
		{line: 2, element: 3, err: errUnclosed},
	}},
	{"backslash outside of a string", `[\{"a":1,"b":2},{}]`, []piece{
		{line: 1, element: 1, text: `\{"a":1,"b":2}`},
		{line: 1, element: 2, text: "{}"},
	}},
	{"missing comma in an element without indentation", "[\n{\n\"a\":\n{\n\"b\":1\n}\n\"c\":2\n},\n{}\n]", []piece{
		{line: 2, element: 1, text: "{\n\"a\":\n{\n\"b\":1\n}\n\"c\":2\n}"},
		{line: 9, element: 2, text: "{}"},
	}},
	{"missing brace on an indented line", "[\n  {\"a\":1},\n  {\"b\":{\"c\":2},\n  {\"d\":3}\n]", []piece{
		{line: 2, element: 1, text: `{"a":1}`},
		{line: 3, element: 2, text: `{"b":{"c":2}`},
		{line: 4, element: 3, text: `{"d":3}`},
	}},
	{"missing brace on the first line", "  [{\"b\":{\"c\":2},\n  {\"d\":3}]", []piece{
		{line: 1, element: 1, text: `{"b":{"c":2}`},
		{line: 2, element: 2, text: `{"d":3}`},
	}},
	{"missing brace", "[{\"a\":1},\n{\"b\":{\"c\":2},\n{\"d\":3},\n{\"e\":4}]", []piece{
		{line: 1, element: 1, text: `{"a":1}`},
		{line: 2, element: 2, text: `{"b":{"c":2}`},
		{line: 3, element: 3, text: `{"d":3}`},
		{line: 4, element: 4, text: `{"e":4}`},
	}},
	{"missing quote", "[\n{\"a\":\"x},\n{\"b\":1}\n]", []piece{
		{line: 2, element: 1, text: `{"a":"x}`},
		{line: 3, element: 2, text: `{"b":1}`},
	}},
	{"missing brace, commas first", "[ {\"a\":1\n, {\"b\":2}\n]", []piece{
		{line: 1, element: 1, text: `{"a":1`},
		{line: 2, element: 2, text: `{"b":2}`},
	}},
	{
		"missing comma over lines", "[\n  {\n    \"a\": 1\n    \"b\": {\n      \"id\": \"x\"\n    }\n  },\n  {}\n]",
		[]piece{
			{line: 2, element: 1, text: "{\n    \"a\": 1\n    \"b\": {\n      \"id\": \"x\"\n    }\n  }"},
			{line: 8, element: 2, text: "{}"},
		},
	},
}

func TestInputIsCutIntoDocuments(t *testing.T) {
	for _, tt := range splits {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := pieces(t, strings.NewReader(tt.input), point{})
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestInputThatIsNoTextIsRefused(t *testing.T) {
	for input, want := range map[string]string{
		"\x1f\x8b\x08\x00": "gzip -dc", "\x28\xb5\x2f\xfd": "zstd -dc", "\xff\xfe{\x00": "iconv",
		"\xfe\xff\x00{": "iconv",
	} {
		if _, err := newSplitter(strings.NewReader(input), point{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("input %q: got error %v, want one that names %s", input, err, want)
		}
	}
}

func TestAFailedReadIsNotTheEndOfTheInput(t *testing.T) {
	failed := errors.New("disk")
	s, err := newSplitter(io.MultiReader(strings.NewReader("{}\n"), iotest.ErrReader(failed)), point{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.next(); err != nil || string(r.text) != "{}" {
		t.Errorf("got %q, %v, want the line before the failure", r.text, err)
	}
	if _, err := s.next(); !errors.Is(err, failed) {
		t.Errorf("got error %v, want %v", err, failed)
	}
}

func TestATextThatIsTooLongIsCountedAndCut(t *testing.T) {
	const most = 2 * readSize
	for _, array := range []bool{false, true} {
		long := `{"id":"` + strings.Repeat("x", most+readSize) + `"}`
		input := long + "\n{}"
		if array {
			input = "[" + long + ",\n{}]"
		}
		s, err := newSplitter(strings.NewReader(input), point{})
		if err != nil {
			t.Fatal(err)
		}
		s.most = most
		r, err := s.next()
		if err != nil || len(r.text) != most || r.size != int64(len(long)) || !errors.Is(r.err, errHuge) {
			t.Errorf("array %v: got %d bytes of %d, %v, %v, want %d of %d", array, len(r.text), r.size, r.err, err,
				most, len(long))
		}
		if r, err = s.next(); err != nil || r.line != 2 || string(r.text) != "{}" {
			t.Errorf("array %v: got %q on line %d, %v, want {} on line 2", array, r.text, r.line, err)
		}
	}
}

// checkSplit holds what is true of every input: how it is read does not matter, reading
// can go on behind each record, and nothing is left out.
func checkSplit(t *testing.T, input []byte) {
	if _, err := newSplitter(bytes.NewReader(input), point{}); err != nil {
		return
	}
	want, places := pieces(t, bytes.NewReader(input), point{})
	if got, _ := pieces(t, iotest.OneByteReader(bytes.NewReader(input)), point{}); !slices.Equal(got, want) {
		t.Errorf("byte by byte: got %+v\nwant %+v", got, want)
	}
	ends := iotest.DataErrReader(iotest.OneByteReader(bytes.NewReader(input)))
	if got, _ := pieces(t, ends, point{}); !slices.Equal(got, want) {
		t.Errorf("with the end beside the last byte: got %+v\nwant %+v", got, want)
	}
	kept := 0
	for i, at := range places {
		kept += len(want[i].text)
		if got, _ := pieces(t, bytes.NewReader(input[at.Offset:]), at); !slices.Equal(got, want[i+1:]) {
			t.Errorf("behind record %d: got %+v\nwant %+v", i, got, want[i+1:])
		}
	}
	solid := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "", "[", "", "]", "", ",", "", "\xef\xbb\xbf",
		"").Replace(string(input))
	if kept < len(solid) {
		t.Errorf("%d bytes in records, want at least the %d that are not space or between elements", kept, len(solid))
	}
}

func FuzzSplitter(f *testing.F) {
	for _, tt := range splits {
		f.Add([]byte(tt.input))
	}
	f.Fuzz(checkSplit)
}
