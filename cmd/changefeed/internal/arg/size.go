package arg

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is an amount of memory in bytes.
type Size struct{ Value int64 }

// The units of a size. MiB and GiB of the environment variable GOMEMLIMIT are the same.
const (
	megabyte = 1 << 20
	gigabyte = 1 << 30
)

// String returns the size in the form that Set reads.
func (s *Size) String() string {
	if s.Value%gigabyte == 0 && s.Value > 0 {
		return strconv.FormatInt(s.Value/gigabyte, 10) + "GB"
	}
	return strconv.FormatInt(s.Value/megabyte, 10) + "MB"
}

// Type returns size.
func (s *Size) Type() string { return "size" }

// Set reads a number of megabytes (1024 times 1024 bytes) or gigabytes (1024 times that).
func (s *Size) Set(text string) error {
	number, unit := strings.TrimSpace(text), int64(0)
	for suffix, size := range map[string]int64{"MB": megabyte, "MiB": megabyte, "GB": gigabyte, "GiB": gigabyte} {
		if end := len(number) - len(suffix); end > 0 && strings.EqualFold(number[end:], suffix) {
			number, unit = strings.TrimSpace(number[:end]), size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || unit == 0 || n <= 0 || n > math.MaxInt64/unit {
		return errors.New("want a size such as 120MB or 1GB")
	}
	s.Value = n * unit
	return nil
}
