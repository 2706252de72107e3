// Package try is listproxy try: it asks for a list as a client does, and says where the answer came
// from.
package try
