package workload

// Namespaces returns the namespaces that Fill creates. Pods are also in team-a and team-b, which the control plane has.
func Namespaces() []string {
	return []string{"edge", "media", "messaging", "payments", "platform", "search", "shop", "staging"}
}

// NamespaceOf returns the namespace of the i-th object. The spread is uneven, as in a real cluster.
func NamespaceOf(i int) string {
	spread := []string{ // shop has three of thirteen, payments two
		"shop", "edge", "payments", "shop", "team-a", "search", "platform",
		"staging", "shop", "messaging", "team-b", "payments", "media",
	}
	return spread[i%len(spread)]
}
