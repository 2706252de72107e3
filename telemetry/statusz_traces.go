package telemetry

import (
	"cmp"
	"os"
	"strings"
)

// defaultSampler is that of OpenTelemetry's specification.
const defaultSampler = "parentbased_always_on"

// Status says whether traces are sent, and which sampler the SDK has made of the environment.
func (t *Traces) Status() TracesStatus {
	if !t.Enabled() {
		return TracesStatus{}
	}
	name := strings.ToLower(strings.TrimSpace(cmp.Or(os.Getenv(envSampler), defaultSampler)))
	if !samplers[name] {
		return TracesStatus{Enabled: true, Sampler: name}
	}
	ratio := strings.TrimSpace(cmp.Or(os.Getenv(envSamplerArg), "1"))
	return TracesStatus{Enabled: true, Sampler: name + " " + ratio}
}
