package netbatch

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"
)

const recorded = "../hybridrow/testdata/hybridrow.json"

// What is written here is what the SDK has written.
func TestRequestsAreThoseOfTheSDK(t *testing.T) {
	written := 0
	for _, c := range Cases(t, recorded, "request") {
		if c.Meaning.Source != "recorded" || c.Name == "varuint-lengths" { // has bodies by their hash
			continue
		}
		written++
		var ops []Operation
		for _, o := range c.Meaning.Operations {
			ops = append(ops, o.operation(t))
		}
		if got := Request(ops...); !bytes.Equal(got, c.Body) {
			t.Errorf("%s: the request is\n% x\nwant\n% x", c.Name, got, c.Body)
		}
	}
	if written != 30 {
		t.Errorf("%d requests were written, want 30", written)
	}
}

// operation is what the SDK was asked to write.
func (o *CaseOperation) operation(t *testing.T) Operation {
	t.Helper()
	decode := func(digits *string) []byte {
		if digits == nil {
			return nil
		}
		b, err := hex.DecodeString(*digits)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	body := octets(o.Body)
	if o.BodyHex != nil {
		body = decode(o.BodyHex)
	}
	return Operation{
		Type: o.OperationType, ResourceType: o.ResourceType, PartitionKey: o.PartitionKey, ID: o.ID, Body: body,
		EffectivePartitionKey: decode(o.EffectivePartitionKeyHex), BinaryID: decode(o.BinaryIDHex),
		IndexingDirective: o.IndexingDirective, IfMatch: o.IfMatch, IfNoneMatch: o.IfNoneMatch,
		TimeToLive: o.TimeToLiveInSeconds, Minimal: o.MinimalReturnPreference != nil,
	}
}

// What is read here is what the SDK has read.
func TestAnswersAreReadAsTheSDKReadsThem(t *testing.T) {
	read := 0
	for _, c := range Cases(t, recorded, "response") {
		if c.Name == "answer-unknown-sparse-fields" { // which no server has to write
			continue
		}
		read++
		results, err := Results(c.Body)
		if err != nil || len(results) != len(c.Meaning.Results) {
			t.Errorf("%s: %d results, %v, want %d", c.Name, len(results), err, len(c.Meaning.Results))
			continue
		}
		for i, want := range c.Meaning.Results {
			got := results[i]
			if !SameBody(got.Body, want.Body, want.BodyLength, want.BodySha256) {
				t.Errorf("%s: body %d is %.100q", c.Name, i, got.Body)
			}
			got.Body = nil
			if same := (Result{
				want.StatusCode, want.SubStatusCode, want.ETag, nil, want.RetryAfterMilliseconds,
				want.RequestCharge,
			}); !reflect.DeepEqual(got, same) {
				t.Errorf("%s: result %d is %+v, want %+v", c.Name, i, got, same)
			}
		}
	}
	if read != 25 {
		t.Errorf("%d answers were read, want 25", read)
	}
}

// A reader that took a broken answer would let the server write it.
func TestBrokenAnswersAreErrors(t *testing.T) {
	result := func(presence byte, sparse ...byte) []byte {
		row := []byte{0x81, 0x71, 0x54, 0xe1, 0x7f, presence, 200, 0, 0, 0, 0, 0, 0, 0}
		return AppendRecord(Request(), append(row, sparse...))
	}
	if all, err := Results(result(1, 11, 5, 7, 0, 0, 0)); err != nil || len(all) != 1 || *all[0].RetryAfter != 7 {
		t.Fatalf("a whole answer has %d results, %v", len(all), err)
	}
	checksum, long := result(1), result(1)
	checksum[19]++
	long[6] = 200
	for name, body := range map[string][]byte{
		"empty": nil, "a wrong checksum": checksum, "a header that is too long": long,
		"no status": result(0), "a field that no result has": result(17),
		"a sparse field of another name": result(1, 11, 6, 7, 0, 0, 0), "one of another type": result(1, 12, 5, 7, 0, 0,
			0),
		"half a sparse field": result(1, 11, 5, 7),
	} {
		if all, err := Results(body); err == nil {
			t.Errorf("%s: %d results, want an error", name, len(all))
		}
	}
}

func TestABodyIsComparedWithAll(t *testing.T) {
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of abc
	for _, c := range []struct {
		got    []byte
		text   *string
		length int
		want   bool
	}{
		{nil, nil, 0, true},
		{[]byte{}, nil, 0, false},
		{nil, new(""), 0, false},
		{[]byte{}, new(""), 0, true},
		{[]byte("a"), new("b"), 0, false},
		{[]byte("abc"), nil, 3, true},
		{[]byte("abd"), nil, 3, false},
		{[]byte("abc"), nil, 4, false},
	} {
		if same := SameBody(c.got, c.text, c.length, sum); same != c.want {
			t.Errorf("%q beside a case of %d bytes: same %v", c.got, c.length, same)
		}
	}
}
