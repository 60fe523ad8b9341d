//go:build !unix

package bench

import (
	"runtime/metrics"
	"time"
)

// busy returns about the processor time of this process. The system's part is unknown on this system.
func busy() time.Duration {
	used := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"}}
	metrics.Read(used)
	return time.Duration(used[0].Value.Float64() * float64(time.Second))
}
