package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var texts = []string{
	``, ` `, `null`, ` true `, `false`, `nul`, `nulll`, `truefalse`, `0`, `-0`, `-`, `01`, `1.`, `1.5`, `.5`, `1e5`,
	`1E+5`, `1e-`, `+1`, `1 2`,
	`""`, `"`, `"a`, `"a\"`, `"a\\"`, `"\u00e9"`, `"\u00e"`, `"\q"`, `"\`, "\"a\tb\"", "\"1234567\x1f\"",
	"\"12345678\x1f\"", `"1234567\n89"`, "\"\xff\x80\"", `"é鱀😀"`,
	`"1234567"`, `"12345678"`, `"123456789"`, `"!!!!!!!!"`, `"aaaaaaa\"aaaaaaaa"`, "\"\x7f\"",
	`{}`, `{ }`, `{"a":1}`, `{"a" : 1 , "b" : [ ] }`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{1:1}`,
	`{"a":1 "b":2}`, `{"a":1`, `{"a":1]`,
	`[]`, `[ ]`, `[1]`, `[1,2 , "x",{"a":[null]}]`, `[1,]`, `[,]`, `[1 2]`, `[`, `]`, `[1}`, `[[[]]]`, `[[[]]`,
	"\ufeff{}", "\x00",
	strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) +
		strings.Repeat("]", maxDepth+1),
}

// isJSON is Check as the standard library has it.
func isJSON(text []byte) bool { return json.Valid(text) && utf8.Valid(text) }

func TestCheck(t *testing.T) {
	for _, text := range texts {
		if _, got := Check([]byte(text)); got != isJSON([]byte(text)) {
			t.Errorf("Check(%.40q) is %v, want %v", text, got, !got)
		}
	}
	for text, want := range map[string]int{`7`: 0, `"{["`: 0, `{}`: 1, `[[],[[1]]]`: 3, `{"a":{"b":[{}]},"c":[]}`: 4} {
		if got, _ := Check([]byte(text)); got != want {
			t.Errorf("%s has %d levels, want %d", text, got, want)
		}
		if s := Scan([]byte(text), 0); s.Value().To != len(text) || s.Levels() != want {
			t.Errorf("%s has %d levels when it is stepped over, want %d", text, s.Levels(), want)
		}
	}
}

// Each byte, at each place of the eight that are tested together.
func TestCheckBytes(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			text := bytes.Repeat([]byte{'a'}, 22)
			text[0], text[21], text[at+1] = '"', '"', byte(c)
			if _, got := Check(text); got != isJSON(text) {
				t.Fatalf("Check(%q) is %v, want %v", text, got, !got)
			}
		}
	}
	for _, text := range []string{
		"\"\xc3\"", "\"\xe2\x82\"", "\"\xed\xa0\x80\"", "\"\xf0\x9f\x98\x80\"", "\"é\xc3\"",
		"\"aaaaaaaaé\xa0\"", "\"€😀ééé\"", "\"\ufffd\"", `"\/"`, "{}\x00",
	} {
		if _, got := Check([]byte(text)); got != isJSON([]byte(text)) {
			t.Errorf("Check(%q) is %v, want %v", text, got, !got)
		}
	}
}

// All readers of a text agree with encoding/json, and with each other: whether it is
// JSON, what members and elements it has, and which of several with one name counts.
func FuzzReaders(f *testing.F) {
	for _, text := range texts[:len(texts)-2] {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		"{\"\xbc\":[]}", `{"a":1,"a":2,"\u0061":3}`, `{"a":{"b":1},"a":{"b":{"c":"}"}}}`,
		`{"\ud83d\ude00":"\ud800","x":"\ud83dx"}`, `[1,[2],"]"]`,
		"\"\u2028\x7f\"", `{"a":[`, `{"a":"\`, `{"a"`, `{"a":-1.5e+7 , "b":true}`, `"\u00E9\u00ABc"`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		levels, got := Check(text)
		if want := isJSON(text); got != want {
			t.Fatalf("Check(%q) is %v, want %v", text, got, want)
		}
		s := Scan(text, 0)
		end := s.Value().To // and no panic, whatever the text is
		for range Members(text) {
		}
		for range Elements(text) {
		}
		_, _, _ = Lookup(text, "a", "b"), Without(nil, text, func([]byte) bool { return false }), Element(text, 1)
		if !got {
			return
		}
		if s.Levels() != levels || len(bytes.TrimRight(text, " \t\r\n")) != end {
			t.Fatalf("%q ends at %d, with %d levels: want %d levels", text, end, s.Levels(), levels)
		}
		checkObject(t, text)
		checkArray(t, text)
		checkString(t, text)
	})
}

func checkObject(t *testing.T, text []byte) {
	var want map[string]json.RawMessage
	if json.Unmarshal(text, &want) != nil || want == nil {
		return
	}
	same := func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
	members, distinct, strict, scanned := map[string]json.RawMessage{}, map[string]json.RawMessage{},
		map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for key, value := range Members(text) {
		members[string(key.Name())] = value
	}
	for _, m := range Distinct(text) {
		if _, twice := distinct[string(m.Key.Name())]; twice {
			t.Fatalf("%q: %s counts twice", text, m.Key)
		}
		distinct[string(m.Key.Name())] = m.Value
	}
	s, l := Strict(text), Scan(text, 0)
	for from, key := range s.Object() {
		if !bytes.HasPrefix(text[from:], key) {
			t.Fatalf("%q: %s is not at %d", text, key, from)
		}
		strict[string(key.Name())] = s.Value().Of(text)
	}
	for _, key := range l.Object() {
		if c := l.Peek(); c != '{' && c != '[' { // others are stepped over by the loop
			scanned[string(key.Name())] = l.Value().Of(text)
		} else {
			scanned[string(key.Name())] = want[string(key.Name())]
		}
	}
	for how, got := range map[string]map[string]json.RawMessage{
		"Members": members, "Distinct": distinct,
		"Strict": strict, "Scan": scanned,
	} {
		if !maps.EqualFunc(got, want, same) {
			t.Fatalf("%s of %q: %s, want %s", how, text, got, want)
		}
	}
	if !s.End() || !l.End() {
		t.Fatalf("%q has an end that is none", text)
	}
	for name, value := range want {
		if got := Lookup(text, name); !bytes.Equal(got, value) {
			t.Fatalf("%q of %q is %s, want %s", name, text, got, value)
		}
		kept := Without(nil, text, func(n []byte) bool { return string(n) == name })
		left := maps.Clone(want)
		delete(left, name)
		var got map[string]json.RawMessage
		if json.Unmarshal(kept, &got) != nil || !maps.EqualFunc(got, left, same) {
			t.Fatalf("%q without %q is %q", text, name, kept)
		}
	}
	for from, key := range Scanning(text) {
		name, own := string(key.Name()), slices.Clone(text)
		at := Scan(own, from)
		at.readKey()
		at.Value()
		object := Span{bytes.IndexByte(own, '{'), bytes.LastIndexByte(own, '}') + 1}
		if rest := CutMember(own, object, Span{from, at.Pos()}); !json.Valid(rest) ||
			len(Distinct(rest)) < len(want)-1 {
			t.Fatalf("%q without one %q is %q", text, name, rest)
		}
	}
}

// Scanning is [Scanner.Object] of a text.
func Scanning(text []byte) map[int]Key {
	s := Scan(text, 0)
	return maps.Collect(s.Object())
}

func checkArray(t *testing.T, text []byte) {
	var want []json.RawMessage
	if json.Unmarshal(text, &want) != nil {
		return
	}
	n := 0
	s := Strict(text)
	for i := range s.Array() {
		if got := s.Value().Of(text); i != n || !bytes.Equal(got, want[i]) || !bytes.Equal(Element(text, i), want[i]) {
			t.Fatalf("element %d of %q is %q", i, text, got)
		}
		n++
	}
	for value := range Elements(text) {
		if n--; value == nil {
			t.Fatalf("an element of %q is nothing", text)
		}
	}
	if n != 0 || Element(text, len(want)) != nil || Element(text, -1) != nil {
		t.Fatalf("%q has not %d elements", text, len(want))
	}
}

func checkString(t *testing.T, text []byte) {
	var want string
	if text = bytes.TrimSpace(text); text[0] != '"' || json.Unmarshal(text, &want) != nil {
		return
	}
	if got := Text(text); got != want {
		t.Fatalf("Text(%s) is %q, want %q", text, got, want)
	}
}

// The text of a string or number is the one that encoding/json gives.
func FuzzAppend(f *testing.F) {
	for _, s := range []string{"", "a", "é\"\\", "\a\x00😀\x7f", "\xff<>&", "\u2028\u2029\b\f\n\r\t\x1f", "\ufffd"} {
		f.Add(s, 1e-7)
	}
	for _, n := range []float64{
		0, math.Copysign(0, -1), 1e21, 1e-6, 9.99e-7, 1e-10, -1e100, 0.1, 1 << 60,
		math.MaxFloat64, 5e-324,
	} {
		f.Add("", n)
	}
	f.Fuzz(func(t *testing.T, s string, n float64) {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		if got, want := AppendString([]byte("x"), s), "x"+strings.TrimSpace(b.String()); string(got) != want ||
			string(AppendString([]byte("x"), []byte(s))) != want {
			t.Errorf("%q is written %s, want %s", s, got, want)
		}
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return
		}
		want, err := json.Marshal(n + 0) // no sign for zero
		if got := AppendNumber([]byte("x"), n); err != nil || string(got) != "x"+string(want) {
			t.Errorf("%v is written %s, want %s", n, got, want)
		}
	})
}

func TestDoublesAreWrittenAsInTheService(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", math.Copysign(0, -1): "0", 0.1: "0.1", 2.5: "2.5", -0.25: "-0.25", 100: "100",
		1. / 3: "0.33333333333333331", 1e14: "100000000000000", 1e20: "1e+020", -1.5e-7: "-1.5e-007", 1e300: "1e+300",
		1 << 63: "9.2233720368547758e+018",
	} {
		if got := AppendDouble([]byte("x"), f); string(got) != "x"+want {
			t.Errorf("%v is written %s, want x%s", f, got, want)
		}
	}
}

func TestMembers(t *testing.T) {
	var got []string
	for key, value := range Members([]byte(` { "a" : 1 , "b\u0020\"c":"x\"}" ,"d":{"e":[1,{}]}, "":null } `)) {
		got = append(got, fmt.Sprintf("%s=%s", key.Name(), value))
	}
	if want := `a=1;b "c="x\"}";d={"e":[1,{}]};=null`; strings.Join(got, ";") != want {
		t.Errorf("members are %s, want %s", strings.Join(got, ";"), want)
	}
	for _, text := range []string{`{}`, ` { } `, `[]`, `["a",1]`, `7`, `"{"`, `null`} {
		for name, value := range Members([]byte(text)) {
			t.Errorf("%s has the member %q: %s", text, name, value)
		}
	}
	for range Members([]byte(`{"a":1,"b":2}`)) { // a reader may stop
		break
	}
}

func TestElements(t *testing.T) {
	var got []string
	for value := range Elements([]byte(` [ 1 ,"a,]", [2,3],{"x":[]} ,true] `)) {
		got = append(got, string(value))
	}
	if want := `1;"a,]";[2,3];{"x":[]};true`; strings.Join(got, ";") != want {
		t.Errorf("elements are %s, want %s", strings.Join(got, ";"), want)
	}
	for _, text := range []string{`[]`, ` [ ] `, `{}`, `{"a":1}`, `7`, `"["`} {
		for value := range Elements([]byte(text)) {
			t.Errorf("%s has the element %s", text, value)
		}
	}
	for range Elements([]byte(`[1,2]`)) {
		break
	}
}

// A page may be cut short on the network: what comes before the cut is read, and half a member is none.
func TestWhatIsCutShortIsLeftOut(t *testing.T) {
	for text, want := range map[string]int{
		`{"a":1,"b":`: 1, `{"a":1,"b":"x`: 1, `{"a":1,"b"`: 1, `{"a":1,"b":[1`: 1, `{"a":`: 0,
	} {
		n := 0
		for key, value := range Members([]byte(text)) {
			if n++; string(key) != `"a"` || string(value) != "1" {
				t.Errorf("%s has the member %s: %q", text, key, value)
			}
		}
		if n != want {
			t.Errorf("%s has %d members, want %d", text, n, want)
		}
	}
	for text, want := range map[string]string{`[1,`: "1", `[1,"x`: "1", `[1,[2`: "1", `[`: ""} {
		if got := string(bytes.Join(slices.Collect(Elements([]byte(text))), []byte(" "))); got != want {
			t.Errorf("%s has the elements %s, want %s", text, got, want)
		}
	}
}

// What lies around the position counts, also where what is below it is stepped over.
func TestLevelsAreCountedFromTheTop(t *testing.T) {
	s := Scan([]byte(`{"a":{"b":[[1],2]}}`), 0)
	for range s.Object() {
		for range s.Object() {
			s.Value()
		}
	}
	if s.Levels() != 4 || s.Bad() {
		t.Errorf("got %d levels, want 4", s.Levels())
	}
}

func TestWhatStaysHasItsSize(t *testing.T) {
	text := []byte(`{"a":1,"b":2,"c":3,"d":4}`)
	for stays := range 1 << 4 {
		var kept Runs
		for i := range 4 {
			kept.Add(Span{1 + 6*i, 6 + 6*i}, stays>>i&1 == 1)
		}
		if got := kept.Append(nil, text); len(got) != kept.Size() {
			t.Errorf("%s has %d bytes, want %d", got, len(got), kept.Size())
		}
	}
}

// What is cut out of a page may grow, and the rest of the page stays as it is.
func TestAMemberIsCutOutOfItsPage(t *testing.T) {
	for _, tt := range []struct{ object, member, want string }{
		{`{"id":"1","_lsn":5}`, `"_lsn":5`, `{"id":"1"}`},
		{`{"id":"1" , "_lsn":5 }`, `"_lsn":5`, `{"id":"1" }`},
		{`{ "_lsn":5 , "id":"1"}`, `"_lsn":5`, `{  "id":"1"}`},
		{`{"a":[1],"_lsn":5,"id":"1"}`, `"_lsn":5`, `{"a":[1],"id":"1"}`},
		{`{ "_lsn":5}`, `"_lsn":5`, `{}`},
	} {
		text := []byte(`[1,` + tt.object + `,{"id":"2"}]`)
		from := 3 + strings.Index(tt.object, tt.member)
		got := CutMember(text, Span{3, 3 + len(tt.object)}, Span{from, from + len(tt.member)})
		if string(got) != tt.want {
			t.Errorf("of %s is left %s, want %s", tt.object, got, tt.want)
		}
		if _ = append(got, strings.Repeat("x", 20)...); !bytes.HasSuffix(text, []byte(`,{"id":"2"}]`)) {
			t.Errorf("of %s the page is left as %s", tt.object, text)
		}
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{
		`"a"`: "a", `""`: "", `"\u00e9\n\""`: "é\n\"", `7`: "", `null`: "",
		`{}`: "", ``: "", `"`: "", `"a\"`: `a\`,
	} {
		if got := Text([]byte(value)); got != want {
			t.Errorf("Text(%s) is %q, want %q", value, got, want)
		}
		if got := AppendText([]byte("x"), []byte(value)); string(got) != "x"+want {
			t.Errorf("AppendText(x, %s) is %q, want %q", value, got, "x"+want)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	text := fmt.Appendf(nil, `{"id":"a","pk":"p","n":[1,2,3],"o":{"x":true,"y":null},"v":%q}`, strings.Repeat("x", 950))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Check(text); !ok {
			b.Fatal("not valid")
		}
	}
}
