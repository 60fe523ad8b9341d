package wire

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// A continuation token contains a version, a checksum and a JSON text, in base64. The checksum is no secret. The
// checksum detects tokens that a client has cut or changed by mistake. A forged token gives its sender nothing that
// the sender may not read anyway.
const (
	tokenVersion = 2
	tokenHead    = 1 + 4
)

// EncodeContinuation returns the token of a JSON text.
func EncodeContinuation(text []byte) string {
	b := make([]byte, tokenHead, tokenHead+len(text))
	b[0] = tokenVersion
	binary.BigEndian.PutUint32(b[1:], crc32.ChecksumIEEE(text))
	return base64.RawURLEncoding.EncodeToString(append(b, text...))
}

// DecodeContinuation returns the JSON text of a token. ok is false if another version of the server made the token,
// because its fields may have another meaning here.
func DecodeContinuation(token string) (text []byte, ok bool) {
	if len(token) > maxToken {
		return nil, false
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < tokenHead || b[0] != tokenVersion ||
		binary.BigEndian.Uint32(b[1:]) != crc32.ChecksumIEEE(b[tokenHead:]) {
		return nil, false
	}
	return b[tokenHead:], true
}
