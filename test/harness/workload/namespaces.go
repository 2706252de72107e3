package workload

// Namespaces returns those that need to be created beside the control plane's own.
func Namespaces() []string {
	return []string{"edge", "media", "messaging", "payments", "platform", "search", "shop", "staging"}
}

// NamespaceOf spreads objects over namespaces, unevenly as in life.
func NamespaceOf(i int) string {
	spread := []string{
		"shop", "edge", "payments", "shop", "team-a", "search", "platform",
		"staging", "shop", "messaging", "team-b", "payments", "media",
	}
	return spread[i%len(spread)]
}
