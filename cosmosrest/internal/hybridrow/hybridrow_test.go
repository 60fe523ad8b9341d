package hybridrow

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/changefeed/cosmosrest/internal/netbatch"
)

const recorded = "testdata/hybridrow.json"

// collect reads all operations of a body.
func collect(body []byte) (ops []Operation, err error) {
	for op, err := range Operations(body) {
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func TestRequestsReadAsTheirMeaning(t *testing.T) {
	cases := netbatch.Cases(t, recorded, "request")
	for _, c := range cases {
		ops, err := collect(c.Body)
		if err != nil || len(ops) != len(c.Meaning.Operations) {
			t.Errorf("%s: %d operations, %v: want %d", c.Name, len(ops), err, len(c.Meaning.Operations))
			continue
		}
		for i, want := range c.Meaning.Operations {
			compare(t, c.Name, &ops[i], &want)
		}
	}
	if len(cases) != 39 {
		t.Errorf("%d requests were read, want 39", len(cases))
	}
}

// compare compares an operation with the meaning of its case.
func compare(t *testing.T, name string, got *Operation, want *netbatch.CaseOperation) {
	t.Helper()
	if got.Op.String() != want.Operation {
		t.Errorf("%s: operation is %v, want %s", name, got.Op, want.Operation)
	}
	for field, v := range map[string]struct {
		got  []byte
		want *string
	}{
		"partitionKey":      {got.PartitionKey, want.PartitionKey},
		"id":                {got.ID, want.ID},
		"indexingDirective": {got.IndexingDirective, want.IndexingDirective},
		"ifMatch":           {got.IfMatch, want.IfMatch},
		"ifNoneMatch":       {got.IfNoneMatch, want.IfNoneMatch},

		"effectivePartitionKey": {got.EffectivePartitionKey, fromHex(t, want.EffectivePartitionKeyHex)},
		"binaryId":              {got.BinaryID, fromHex(t, want.BinaryIDHex)},
	} {
		if !netbatch.SameBody(v.got, v.want, 0, "") {
			t.Errorf("%s: %s is %q, want %v", name, field, v.got, v.want)
		}
	}
	body := want.Body
	if want.BodyHex != nil {
		body = fromHex(t, want.BodyHex)
	}
	if !netbatch.SameBody(got.Body, body, want.BodyLength, want.BodySha256) {
		t.Errorf("%s: resourceBody is %.100q of %d bytes", name, got.Body, len(got.Body))
	}
	if !reflect.DeepEqual(got.TimeToLive, want.TimeToLiveInSeconds) {
		t.Errorf("%s: timeToLiveInSeconds is %v, want %v", name, got.TimeToLive, want.TimeToLiveInSeconds)
	}
	if minimal := want.MinimalReturnPreference != nil && *want.MinimalReturnPreference; got.Minimal != minimal {
		t.Errorf("%s: minimalReturnPreference is %v", name, got.Minimal)
	}
}

// fromHex is a value that a case has in hexadecimal digits.
func fromHex(t *testing.T, digits *string) *string {
	t.Helper()
	if digits == nil {
		return nil
	}
	b, err := hex.DecodeString(*digits)
	if err != nil {
		t.Fatal(err)
	}
	return new(string(b))
}

// The three answers that are read here only are those that a writer would not write: fields
// of unknown names, in another order, and a comment.
func TestAnswersAreWrittenToTheByte(t *testing.T) {
	written := 0
	for _, c := range netbatch.Cases(t, recorded, "response") {
		if slices.Contains([]string{"answer-unknown-sparse-fields", "answer-sparse-order", "answer-segment-comment"},
			c.Name) {
			continue
		}
		written++
		bodies := longBodies(t, c)
		b := AppendHeader(nil)
		for i, want := range c.Meaning.Results {
			r := Result{
				Status: int(want.StatusCode), ETag: want.ETag, Body: bodies[i],
				RetryAfter: want.RetryAfterMilliseconds, Charge: want.RequestCharge,
			}
			if want.SubStatusCode != nil {
				r.SubStatus = new(int(*want.SubStatusCode))
			}
			b = AppendResult(b, &r)
		}
		if !bytes.Equal(b, c.Body) {
			t.Errorf("%s: the answer is\n% x\nwant\n% x", c.Name, b[:min(len(b), 500)], c.Body[:min(len(c.Body), 500)])
		}
	}
	if written != 23 {
		t.Errorf("%d answers were written, want 23", written)
	}
}

// longBodies are the bodies of an answer, of which the case has the long ones by their hash
// only: those are read from the bytes.
func longBodies(t *testing.T, c netbatch.Case) (all [][]byte) {
	t.Helper()
	results, err := netbatch.Results(c.Body)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	for i, want := range c.Meaning.Results {
		if !netbatch.SameBody(results[i].Body, want.Body, want.BodyLength, want.BodySha256) {
			t.Fatalf("%s: body %d is %.100q", c.Name, i, results[i].Body)
		}
		all = append(all, results[i].Body)
	}
	return all
}

func TestDamagedBodiesAreRefused(t *testing.T) {
	says := map[string]string{
		"empty": "segment header is missing", "json": "begins with the byte 5b", "crc-wrong": "CRC-32",
		"row-changed":     "CRC-32",
		"segment-version": "segment header begins with the byte 80", "segment-schema": "segment header has the schema",
		"segment-length-past-end": "segment header says", "segment-length-short": "has 4 bytes: want 10",
		"record-version": "record header begins with the byte 00", "record-schema": "record header has the schema",
		"record-length-past-end": "are left", "record-length-huge": "has 2147483647 bytes",
		"record-length-negative": "has -1 bytes",
		"record-length-zero":     "row is missing", "row-version": "row begins with the byte 82",
		"row-schema":    "row has the schema 2145473650",
		"row-of-result": "row has the schema 2145473649", "field-length-past-end": "id: ",
		"varuint-unending":    "id: a number of variable length",
		"sparse-type-unknown": "type is 255", "sparse-type-wrong": `"ifMatch": type is 21`,
		"no-operation-type":      "operationType is missing",
		"operation-type-unknown": "operationType is 3", "resource-type-wrong": "resourceType is 1",
		"id-not-utf8":   "no UTF-8",
		"truncated-row": "are left", "truncated-record-header": "record header ends after",
		"truncated-segment": "segment header ends after",
		"one-byte":          "segment header ends after 1 bytes", "behind-the-end": "record header",
	}
	cases := netbatch.Cases(t, recorded, "bad-request")
	for _, c := range cases {
		if ops, err := collect(c.Body); err == nil || says[c.Name] == "" ||
			!strings.Contains(err.Error(), says[c.Name]) {
			t.Errorf("%s (%s): %d operations and the error %v, want %q in it", c.Name, c.Meaning.Error, len(ops), err,
				says[c.Name])
		}
	}
	if len(cases) != 30 {
		t.Errorf("%d bodies were tried, want 30", len(cases))
	}
}

// A field of an operation counts under its name too, and only once.
func TestSparseFieldsByName(t *testing.T) {
	head := []byte{0x81, 0x70, 0x54, 0xe1, 0x7f, 1, 2, 0, 0, 0, 0, 0, 0, 0}
	match := []byte{20, 9, 1, 'e'}
	named := append([]byte{20, 13 + 7}, "ifMatch\x01e"...)
	for name, c := range map[string]struct {
		fields []byte
		says   string // of the error; empty for none
	}{
		"by name":           {named, ""},
		"by number":         {match, ""},
		"beside others":     {slices.Concat([]byte{7, 13 + 1, 'x', 1, 2, 3, 4, 14, 0, 5, 1, 13}, match), ""},
		"twice":             {slices.Concat(match, match), `"ifMatch": it has come before`},
		"twice, once named": {slices.Concat(match, named), `"ifMatch": it has come before`},
		"of a place":        {[]byte{20, 5, 1, 'i'}, `"id": it has come before`},
		"null":              {[]byte{1, 9}, `"ifMatch": type is 1`},
		"a scope":           {[]byte{34, 13 + 1, 'x', 70}, `"x": type 34 is an object`},
		"an end of a scope": {[]byte{70, 13}, `type 70`},
		"no type":           {[]byte{0, 13}, "type 0 is none"},
		"a type of none":    {[]byte{29, 13}, "type 29 is none"},
		"no path":           {[]byte{20}, "does not end"},
		"no value":          {[]byte{7, 13 + 1, 'x', 1, 2, 3}, `"x": 4 bytes are wanted, and 3 are left`},
		"a long name": {
			[]byte{20, 0xff, 0xff, 0xff, 0xff, 0x0f, 'x'},
			"4294967282 bytes are wanted, and 1 are left",
		},
		"a long value": {
			[]byte{20, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
			"18446744073709551615 bytes are wanted",
		},
		"seconds of text": {[]byte{20, 11, 0}, `"timeToLiveInSeconds": type is 20`},
		"a number of yes": {[]byte{5, 12, 1}, `"minimalReturnPreference": type is 5`},
	} {
		ops, err := collect(netbatch.AppendRecord(netbatch.Request(), slices.Concat(head, c.fields)))
		switch {
		case c.says == "" && (err != nil || string(ops[0].IfMatch) != "e"):
			t.Errorf("%s: %v, want the ETag", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: the error is %v, want %q in it", name, err, c.says)
		}
	}
}

// A newer SDK may send fields of any type that this server does not know.
func TestFieldsOfUnknownNamesArePassedOverWhateverTheirType(t *testing.T) {
	head := []byte{0x81, 0x70, 0x54, 0xe1, 0x7f, 1, 2, 0, 0, 0, 0, 0, 0, 0}
	for kind, size := range map[byte]int{
		1: 0, 2: 0, 3: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 1, 10: 2, 11: 4, 12: 8, 15: 4, 16: 8, 17: 16, 18: 8, 19: 16,
		22: 16, 23: 8, 24: 12,
	} {
		fields := slices.Concat([]byte{kind, 13 + 1, 'x'}, make([]byte, size), []byte{20, 9, 1, 'e'})
		ops, err := collect(netbatch.AppendRecord(netbatch.Request(), slices.Concat(head, fields)))
		if err != nil || string(ops[0].IfMatch) != "e" {
			t.Errorf("type %d of %d bytes: %v, want the ETag after it", kind, size, err)
		}
	}
}

// What this server cannot understand may change the meaning of the rest.
func TestPresenceOfUnknownFieldsIsRefused(t *testing.T) {
	row := []byte{0x81, 0x70, 0x54, 0xe1, 0x7f, 0x81, 2, 0, 0, 0, 0, 0, 0, 0}
	_, err := collect(netbatch.AppendRecord(netbatch.Request(), row))
	if err == nil || !strings.Contains(err.Error(), "presence byte is 81") {
		t.Errorf("of an operation: %v", err)
	}
	segment := netbatch.Request()
	segment[5] = 2 // its comment is there, and its length not
	if _, err := collect(segment); err == nil || !strings.Contains(err.Error(), "has no length") {
		t.Errorf("of a segment header: %v", err)
	}
}

func TestAnErrorNamesItsOperation(t *testing.T) {
	good := netbatch.Operation{Type: 2, ID: new("a")}
	for n := range 3 {
		ops := []netbatch.Operation{good, good, good}
		ops[n].Type = 3
		_, err := collect(netbatch.Request(ops...))
		if want := fmt.Sprintf("operation %d: ", n); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: want it to begin with %q", err, want)
		}
	}
}

// The fields lie side by side in the body.
func TestWhatIsAppendedToAFieldChangesNoOther(t *testing.T) {
	ops, err := collect(netbatch.Request(netbatch.Operation{Type: 5, ID: new("id"), Body: []byte(`{"id":"id"}`)}))
	if err != nil {
		t.Fatal(err)
	}
	longer := append(ops[0].ID, "..."...)
	if string(ops[0].Body) != `{"id":"id"}` {
		t.Errorf("with the id %q the body is %q", longer, ops[0].Body)
	}
}

// boundaries are where a record or a segment of a body ends: a stream may end there.
func boundaries(t *testing.T, body []byte) (ends []int) {
	t.Helper()
	for rest := body; ; {
		if ends = append(ends, len(body)-len(rest)); len(rest) == 0 {
			return ends[1:]
		}
		if rest[1] == 0xf0 {
			rest = rest[binary.LittleEndian.Uint32(rest[6:]):]
			continue
		}
		rest = rest[13+binary.LittleEndian.Uint32(rest[5:]):]
	}
}

// A body that was cut is refused unless it ends with a whole record, which HTTP's own
// length guards; and none of its bits can change without notice.
func TestNothingIsReadOfADamagedBody(t *testing.T) {
	for _, c := range netbatch.Cases(t, recorded, "request") {
		if len(c.Body) > 4<<10 {
			continue
		}
		ends := boundaries(t, c.Body)
		for n := range c.Body {
			if ops, err := collect(c.Body[:n]); (err == nil) != slices.Contains(ends, n) {
				t.Errorf("%s cut after %d bytes: %d operations, %v", c.Name, n, len(ops), err)
			}
		}
		comment := binary.LittleEndian.Uint32(c.Body[6:]) // up to there
		for i := range c.Body {
			for bit := range 8 {
				b := slices.Clone(c.Body)
				b[i] ^= 1 << bit
				passed := i == 5 && bit > 0 || i >= 10 && i < int(comment) // what a header says to people
				if two := c.Name == "two-segments" && i > 50; two {
					continue
				}
				if ops, err := collect(b); (err == nil) != passed {
					t.Errorf("%s with another bit %d at %d: %d operations, %v", c.Name, bit, i, len(ops), err)
				}
			}
		}
	}
}

// Rows that are wrong inside, under the right checksum, are refused or read, and take no
// memory that they did not bring.
func TestWrongRowsTakeNoMemory(t *testing.T) {
	head := netbatch.Request()
	for _, c := range netbatch.Cases(t, recorded, "request") {
		if len(c.Body) > 2<<10 || len(c.Meaning.Operations) == 0 || c.Name == "two-segments" ||
			c.Name == "segment-comment" {
			continue
		}
		row := c.Body[len(head)+13:][:binary.LittleEndian.Uint32(c.Body[len(head)+5:])]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tried := 0
		for i := 5; i < len(row); i++ {
			for _, wrong := range [][]byte{
				{0},
				{1},
				{0x1e},
				{0x46},
				{0x7f},
				{0xff},
				{0xff, 0xff, 0xff, 0xff, 7},
				{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
				{},
			} {
				checkWithin(t, netbatch.AppendRecord(slices.Clip(head), slices.Concat(row[:i], wrong, row[i+1:])))
				tried++
			}
		}
		runtime.ReadMemStats(&after)
		if used := int(after.TotalAlloc-before.TotalAlloc) / max(tried, 1); used > 8<<10+8*len(row) {
			t.Errorf("%s: %d bytes of memory for a row of %d", c.Name, used, len(row))
		}
	}
}

// checkWithin checks that what is read lies in the body, and is read again from what
// the SDK would write of it.
func checkWithin(t *testing.T, body []byte) {
	t.Helper()
	ops, err := collect(body)
	if err != nil {
		return
	}
	var again []netbatch.Operation
	size := 0
	for _, op := range ops {
		for _, text := range [][]byte{op.PartitionKey, op.ID, op.IndexingDirective, op.IfMatch, op.IfNoneMatch} {
			if !utf8.Valid(text) {
				t.Errorf("%q was read as a text", text)
			}
			size += len(text)
		}
		size += len(op.EffectivePartitionKey) + len(op.BinaryID) + len(op.Body)
		again = append(again, written(&op))
	}
	if size > len(body) {
		t.Errorf("%d bytes were read of %d", size, len(body))
	}
	if same, err := collect(netbatch.Request(again...)); err != nil || !reflect.DeepEqual(same, ops) {
		t.Errorf("read %+v, and %+v, %v when written again", ops, same, err)
	}
}

// written is an operation as the SDK would have it.
func written(op *Operation) netbatch.Operation {
	o := netbatch.Operation{
		EffectivePartitionKey: op.EffectivePartitionKey, BinaryID: op.BinaryID, Body: op.Body,
		TimeToLive: op.TimeToLive, Minimal: op.Minimal,
	}
	for kind, known := range operations {
		if known == op.Op {
			o.Type = kind
		}
	}
	for from, to := range map[*[]byte]**string{
		&op.PartitionKey: &o.PartitionKey, &op.ID: &o.ID, &op.IndexingDirective: &o.IndexingDirective,
		&op.IfMatch: &o.IfMatch, &op.IfNoneMatch: &o.IfNoneMatch,
	} {
		if *from != nil {
			*to = new(string(*from))
		}
	}
	return o
}

// FuzzOperations reads any body and, so that it gets past the checksum, any row.
func FuzzOperations(f *testing.F) {
	for _, kind := range []string{"request", "bad-request"} {
		for _, c := range netbatch.Cases(f, recorded, kind) {
			if len(c.Body) < 4<<10 {
				f.Add(c.Body, false)
			}
			if len(c.Body) > 23 && len(c.Body) < 4<<10 {
				f.Add(c.Body[23:], true)
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, row bool) {
		if row {
			body = netbatch.AppendRecord(netbatch.Request(), body)
		}
		checkWithin(t, body)
	})
}
