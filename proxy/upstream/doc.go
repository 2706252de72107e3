// Package upstream has what is needed to reach the API server: its address, the connections for
// callers' requests and for listproxy's own, which of the addresses in --upstream are up, and which
// callers the API server has accepted.
package upstream
