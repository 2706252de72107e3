package discovery

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Same reports whether the API servers are still those that were known before, and none of them was started again:
// their Leases are read now, and say the same. It is false where nobody knows, because the Leases may not be
// read or there are none. The storage of API servers that run is not put back to an earlier state.
func (s *Servers) Same(ctx context.Context) (bool, error) {
	s.mu.Lock()
	known, refused := maps.Clone(s.holders), s.refused
	s.mu.Unlock()
	if len(known) == 0 || refused {
		return false, nil
	}
	list, err := s.leases.List(ctx, metav1.ListOptions{LabelSelector: serverLeaseSelector})
	switch {
	case isRefused(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the API servers' Leases could not be read: %w", err)
	}
	now := make(map[string]string, len(list.Items))
	for i := range list.Items {
		name, holder, err := readServerLease(&list.Items[i])
		if err != nil {
			return false, err
		}
		now[name] = holder
	}
	return maps.Equal(known, now), nil
}
