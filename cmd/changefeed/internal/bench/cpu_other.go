//go:build !unix

package bench

import (
	"runtime/metrics"
	"time"
)

// busy is about the processor time of this process. The system's share is not known here.
func busy() time.Duration {
	used := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"}}
	metrics.Read(used)
	return time.Duration(used[0].Value.Float64() * float64(time.Second))
}
