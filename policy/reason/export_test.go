package reason

// Forwarding returns every reason to forward a request, in the order of docs/reference.md.
func Forwarding() []Reason {
	all := make([]Reason, len(forwarding))
	for i, row := range forwarding {
		all[i] = row.reason
	}
	return all
}
