// Package binaryjson converts between JSON text and Cosmos binary JSON. The Rust SDK writes items in this format unless
// it is told otherwise, and the .NET SDK does if its binary encoding is on.
//
//	if binaryjson.Is(body) {
//		text, err := binaryjson.AppendText(nil, body, limit)
//	}
//
//	answer = binaryjson.Append(nil, text)
//
// A body is the byte 80, with which no JSON text begins, and a value. A value is a marker of one byte, and then what
// the marker says; all numbers are little-endian. The file markers.go lists the markers.
//
// [AppendText] reads every marker that has a value in JSON. It checks each length against the bytes that there are,
// limits what it writes, and keeps its own stack, so no body causes a panic or takes more memory than its limit. The
// error for a damaged body names the byte. The result is always JSON text in UTF-8.
//
// [Append] writes a part of the format that all readers know: integers in their shortest form, doubles, the dictionary,
// plain strings, objects and arrays with a length. The same text always gets the same bytes.
//
// # Numbers
//
// Integers keep all digits as far as a marker can hold them (64 bits, with or without a sign). A double with an
// integral value that an int64 or uint64 holds becomes the integer with all digits; any other double becomes the
// shortest text that parses to the same double. In the other direction, a number with a point or an exponent is an
// integer if its value is an integer of at most 53 bits, as in the answers of the service, and a double otherwise. A
// number beyond the range of doubles becomes the largest double.
package binaryjson
