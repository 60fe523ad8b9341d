//go:build !linux && !darwin

package doctor

import (
	"errors"
	"fmt"
)

// diskSpace is not known on this system.
func diskSpace(dir string) (free, size uint64, err error) {
	return 0, 0, fmt.Errorf("ask the disk of %s: %w", dir, errors.ErrUnsupported)
}
