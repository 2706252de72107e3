package telemetry

// Status says whether traces are sent, and by which sampler.
func (t *Traces) Status() TracesStatus {
	return TracesStatus{Enabled: t.Enabled(), Sampler: t.sampler}
}
