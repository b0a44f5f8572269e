"""Explain one item of a report in full: an advice, an idle gap, a kernel, a step, a check, or the verdict."""
