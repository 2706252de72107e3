// Package budget counts the bytes that are stored, against a bound.
package budget
