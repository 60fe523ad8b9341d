package binaryjson

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

const limit = 1 << 20 // bytes of text

// vector is a value with its bytes.
type vector struct {
	Name   string
	Binary string
	JSON   json.RawMessage
}

// vectors are those of testdata/vectors.json: the corpus of the Rust driver's own tests.
func vectors(t testing.TB) (all []vector) {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 80 {
		t.Fatalf("%d vectors: want at least 80", len(all))
	}
	return all
}

// parseHex parses bytes written as "80 D0".
func parseHex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// textOf is the text of a body, which must be JSON.
func textOf(t testing.TB, body []byte) []byte {
	t.Helper()
	text, err := AppendText(nil, body, limit)
	if err != nil {
		t.Fatalf("% X: %v", body, err)
	}
	if _, ok := rawjson.Check(text); !ok {
		t.Fatalf("% X: %q is not JSON", body, text)
	}
	return text
}

// wantSame checks that two texts are the same value, with the same order of members.
func wantSame(t testing.TB, got, want []byte) {
	t.Helper()
	if a, b := parsed(t, got), parsed(t, want); !reflect.DeepEqual(a, b) {
		t.Fatalf("got %.300s\nwant %.300s", got, want)
	}
}

// member is a member of an object: a map would lose the order and the repeated names.
type member struct {
	name  string
	value any
}

// parsed is the value of a text, with numbers as float64: a number out of range is the largest.
func parsed(t testing.TB, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return parseValue(t, d)
}

func parseValue(t testing.TB, d *json.Decoder) any {
	t.Helper()
	token, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	switch token := token.(type) {
	case json.Number:
		f, err := token.Float64()
		if err != nil {
			f = math.Copysign(math.MaxFloat64, f)
		}
		return f + 0 // -0 is 0
	case json.Delim:
		all := []any{token}
		for d.More() {
			v := parseValue(t, d)
			if token == '{' {
				v = member{v.(string), parseValue(t, d)}
			}
			all = append(all, v)
		}
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
		return all
	default:
		return token
	}
}

// Each vector is read as its value; written again, it is read as the same.
func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			text := textOf(t, parseHex(t, v.Binary))
			wantSame(t, text, v.JSON)
			again := Append(nil, v.JSON)
			wantSame(t, textOf(t, again), v.JSON)
			if twice := Append(nil, textOf(t, again)); !bytes.Equal(twice, again) {
				t.Errorf("% X, then % X: want the same bytes each time", again, twice)
			}
		})
	}
}

// Every marker that has a value in JSON is in the vectors or here, and every other is refused.
func TestMarkers(t *testing.T) {
	known := [256]bool{}
	for m := range 0x20 {
		known[m] = true
		if got := textOf(t, []byte{preamble, byte(m)}); string(got) != fmt.Sprint(m) {
			t.Errorf("%02X is %s", m, got)
		}
	}
	for i, s := range dictionary {
		known[markSystem+i] = true
		if got := textOf(t, []byte{preamble, markSystem + byte(i)}); string(got) != `"`+s+`"` {
			t.Errorf("%02X is %s: want %s", markSystem+i, got, s)
		}
		if got := Append(nil, []byte(`"`+s+`"`)); !bytes.Equal(got, []byte{preamble, markSystem + byte(i)}) {
			t.Errorf("%s is % X", s, got)
		}
	}
	for n := range 0x40 {
		known[markShortString+n] = true
		body := append([]byte{preamble, markShortString + byte(n)}, strings.Repeat("x", n)...)
		if got := textOf(t, body); len(got) != n+2 {
			t.Errorf("%02X is %s", markShortString+n, got)
		}
	}
	for _, v := range vectors(t) {
		known[parseHex(t, v.Binary)[1]] = true
		if v.Name == "reference_string_r1" {
			for m := markReference1; m <= markReference4; m++ {
				known[m] = true // all four are in arrays
			}
		}
	}
	for m, ok := range known {
		body := append([]byte{preamble, byte(m)}, make([]byte, 32)...)
		_, err := AppendText(nil, body, limit)
		damaged, refused := errors.AsType[*Error](err)
		says := refused && damaged.At == 1 && (strings.Contains(damaged.Reason, "no value in JSON") ||
			strings.Contains(damaged.Reason, "dictionary that is not in the body"))
		if says == ok {
			t.Errorf("marker %02X: %v, known %v", m, err, ok)
		}
	}
}

// What the service and both SDKs were seen to write.
func TestRecorded(t *testing.T) {
	for _, v := range []struct{ origin, body, want string }{
		{
			"the Rust driver", "80 ED 18 04 82 69 64 81 31 82 70 6B 81 61 81 6E CB 64 00 00 00 00 00 00 00 81 74 D2",
			`{"id":"1","pk":"a","n":100,"t":true}`,
		},
		{
			"the .NET SDK, in a bulk", "80 ea 1a 2c 82 62 31 82 70 6b 81 6b 81 6e 05 81 66 cc 00 00 00 00 00 00 f8 3f 81 74 d2",
			`{"id":"b1","pk":"k","n":5,"f":1.5,"t":true}`,
		},
	} {
		if got := textOf(t, parseHex(t, v.body)); string(got) != v.want {
			t.Errorf("%s: %s: want %s", v.origin, got, v.want)
		}
	}
}

// Text to bytes: each number, string and container has one form.
func TestWritten(t *testing.T) {
	for text, want := range map[string]string{
		`31`: "1F", `32`: "C8 20", `255`: "C8 FF", `256`: "C9 00 01", `-1`: "C9 FF FF", `-32769`: "CA FF 7F FF FF",
		`2147483648`:           "CB 00 00 00 80 00 00 00 00",
		`9007199254740993`:     "CB 01 00 00 00 00 00 20 00",
		`9223372036854775807`:  "CB FF FF FF FF FF FF FF 7F",
		`-9223372036854775808`: "CB 00 00 00 00 00 00 00 80",
		`9223372036854775808`:  "C7 00 00 00 00 00 00 00 80",
		`18446744073709551615`: "C7 FF FF FF FF FF FF FF FF",
		`18446744073709551616`: "CC 00 00 00 00 00 00 F0 43",
		`1e400`:                "CC FF FF FF FF FF FF EF 7F",
		`-1e400`:               "CC FF FF FF FF FF FF EF FF",
		`1.0`:                  "01", `1e2`: "C8 64", `-0`: "00", `-0.0`: "00", `0.5`: "CC 00 00 00 00 00 00 E0 3F",
		`1e20`: "CC 40 8C B5 78 1D AF 15 44",
		`""`:   "80", `"a\"b"`: "83 61 22 62", `"é"`: "82 C3 A9", `"\u00e9"`: "82 C3 A9", `"\ud800"`: "83 EF BF BD",
		` [ ] `: "E0", `{}`: "E8", `[1, 2]`: "E2 02 01 02",
		`{"id":{"a\\":[null,false]}}`: "EA 0A 2C EA 07 82 61 5C E2 02 D0 D1",
	} {
		if got := fmt.Sprintf("% X", Append(nil, []byte(text))); got != "80 "+want {
			t.Errorf("%s is %s: want 80 %s", text, got, want)
		}
	}
	// Among these are strings, and arrays with one string, just before and at the end of each width of a length.
	for _, n := range []int{63, 64, 252, 253, 254, 255, 256, 65531, 65532, 65533, 65535, 65536, 200_000} {
		array := []byte(`["` + strings.Repeat("x", n) + `"]`)
		wantSame(t, textOf(t, Append(nil, array)), array)
		text := []byte(`{"a":["` + strings.Repeat("x", n) + `",1],"b":2}`)
		wantSame(t, textOf(t, Append(nil, text)), text)
	}
	deep := []byte(strings.Repeat(`[{"a":`, 4000) + `"` + strings.Repeat("x", 300) + `"` + strings.Repeat(`}]`, 4000))
	if got := textOf(t, Append(nil, deep)); !bytes.Equal(got, deep) {
		t.Error("a deep text came back changed")
	}
}

// Doubles keep the value that an integer of the program can have.
func TestNumbersKeepTheirValue(t *testing.T) {
	for f, want := range map[float64]string{
		1 << 53: "9007199254740992", 1 << 60: "1152921504606846976", -1 << 63: "-9223372036854775808",
		1 << 63: "9223372036854775808", 1 << 64: "18446744073709552000", 1e21: "1e+21", 0.1: "0.1", 1e-7: "1e-7",
		math.MaxFloat64: "1.7976931348623157e+308", 5e-324: "5e-324", math.Copysign(0, -1): "0",
	} {
		body := []byte{preamble, markNumberDouble}
		for bits := range 8 {
			body = append(body, byte(math.Float64bits(f)>>(8*bits)))
		}
		if got := string(textOf(t, body)); got != want {
			t.Errorf("%v is %s: want %s", f, got, want)
		}
	}
}

// Fractions have the shortest text that is the same double.
func TestFractions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		f := math.Round(r.NormFloat64()*math.Pow(10, float64(r.IntN(12)))*1000) / math.Pow(10, float64(r.IntN(8)))
		got, want := appendFraction(nil, f), rawjson.AppendNumber(nil, f)
		if f != math.Trunc(f) && !bytes.Equal(got, want) {
			t.Fatalf("%v is %s: want %s", f, got, want)
		}
	}
}
