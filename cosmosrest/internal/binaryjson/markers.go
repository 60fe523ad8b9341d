package binaryjson

// preamble begins every body.
const preamble = 0x80

// The markers. Markers of a range are named by their first.
const (
	markLiteral      = 0x00 // to 1F: the integer itself
	markSystem       = 0x20 // to 3F: a string of the dictionary
	markUser         = 0x40 // to 67: a string of a dictionary outside the body
	lastUser         = 0x67
	markBase64       = 0x71 // 71, 72: length of 1 or 2 bytes
	markBase64URL    = 0x73 // 73, 74
	markGUIDLower    = 0x75
	markGUIDUpper    = 0x76
	markGUIDQuoted   = 0x77
	markHexLower     = 0x78
	markHexUpper     = 0x79
	markDateTime     = 0x7A
	markPacked4      = 0x7B // 4 bits a character
	markPacked5      = 0x7C
	markPacked6      = 0x7D
	markPacked7      = 0x7E // 7E, 7F: length of 1 or 2 bytes
	markShortString  = 0x80 // to BF: length in the marker
	markString1      = 0xC0 // length of 1, 2 or 4 bytes
	markString2      = 0xC1
	markString4      = 0xC2
	markReference1   = 0xC3 // C3 to C6: offset of 1, 2, 3 or 4 bytes
	markReference4   = 0xC6
	markUint64       = 0xC7
	markNumberUint8  = 0xC8
	markNumberInt16  = 0xC9
	markNumberInt32  = 0xCA
	markNumberInt64  = 0xCB
	markNumberDouble = 0xCC
	markFloat32      = 0xCD
	markFloat64      = 0xCE
	markFloat16      = 0xCF
	markNull         = 0xD0
	markFalse        = 0xD1
	markTrue         = 0xD2
	markGUID         = 0xD3
	markUint8        = 0xD7
	markInt8         = 0xD8
	markInt16        = 0xD9
	markInt32        = 0xDA
	markInt64        = 0xDB
	markUint32       = 0xDC
	markBinary1      = 0xDD // length of 1, 2 or 4 bytes
	markBinary2      = 0xDE
	markBinary4      = 0xDF
	markArrayEmpty   = 0xE0 // E1: of one item; E2 to E4: length of 1, 2 or 4 bytes; E5 to E7: also a count
	markArray1       = 0xE2
	markArray2       = 0xE3
	markArray4       = 0xE4
	markObjectEmpty  = 0xE8 // E9 to EF as for arrays
	markObject1      = 0xEA
	markNumbers1     = 0xF0 // count of 1 or 2 bytes
	markNumbers2     = 0xF1
	markNumberRows1  = 0xF2 // arrays of F0
	markNumberRows2  = 0xF3 // arrays of F1
)

const (
	shortest = markString1 - markShortString // first length that the marker of a string cannot say
	literals = markSystem - markLiteral      // first integer that is not its own marker
)

// dictionary contains the strings that have a marker of their own.
var dictionary = [...]string{
	"$s", "$t", "$v", "_attachments", "_etag", "_rid", "_self", "_ts", "attachments/", "coordinates", "geometry",
	"GeometryCollection", "id", "url", "Value", "label", "LineString", "link", "MultiLineString", "MultiPoint",
	"MultiPolygon", "name", "Name", "Type", "Point", "Polygon", "properties", "type", "value", "Feature",
	"FeatureCollection", "_id",
}

// words are the strings of the dictionary as bytes.
var words = func() (all [len(dictionary)][]byte) {
	for i, s := range dictionary {
		all[i] = []byte(s)
	}
	return all
}()

// markerOf returns the marker of a string of the dictionary, or 0.
func markerOf(text []byte) byte {
	if len(text) < len("id") || len(text) > len("GeometryCollection") {
		return 0
	}
	if marker := markers[slotOf(text)]; marker != 0 && string(words[marker-markSystem]) == string(text) {
		return marker
	}
	return 0
}

// markers are the markers of the dictionary, each in the slot of its string. No two strings have the same slot.
var markers = func() (all [slots]byte) {
	for i, s := range words {
		all[slotOf(s)] = markSystem + byte(i)
	}
	return all
}()

const slots = 128

// slotOf returns the slot of a string of two bytes or more.
func slotOf(text []byte) int {
	return (len(text)*1 + int(text[0])*5 + int(text[1])*7) % slots
}
