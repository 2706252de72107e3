package faults

import (
	"time"
)

// streamCases break what passes between listproxy and kube-apiserver.
func streamCases() []faultCase {
	return []faultCase{
		{name: "connections_cut", stage: quiet, fault: func(s *scene) time.Time {
			for begun := time.Now(); time.Since(begun) < *duration; {
				s.hop.CutAll()
				pause(s.Context(), 300*time.Millisecond)
			}
			s.hop.CutAll()
			return time.Now()
		}},
	}
}
